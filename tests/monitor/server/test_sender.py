"""The sender: what is sent when, and how each error appears in the health."""

from __future__ import annotations

from support import builders as b
from support.records import wait_until
from support.values import replace
from warmwatch_monitor.model.snapshot import Snapshot
from warmwatch_monitor.server.sender import Sender


class Outbox:
    """Stores what it is given; raises while ``error`` is set."""

    name = "outbox"
    interval = 0.01

    def __init__(self) -> None:
        self.sent: list[Snapshot] = []
        self.error: Exception | None = None
        self.closed = False

    def export(self, snapshot: Snapshot) -> None:
        if self.error:
            raise self.error
        self.sent.append(snapshot)

    def close(self) -> None:
        self.closed = True


def test_a_sender_stopped_before_the_first_poll_sends_nothing() -> None:
    outbox, nothing = Outbox(), replace(b.snapshot(), epoch=0.0)
    sender = Sender(outbox, lambda: nothing)
    sender.start()
    sender.stop()
    assert (outbox.sent, outbox.closed) == ([], True)
    assert sender.latest().exports[0].up is None


def test_each_snapshot_after_the_first_poll_is_sent_with_its_own_health() -> None:
    latest = [replace(b.snapshot(), epoch=0.0)]
    outbox = Outbox()
    sender = Sender(outbox, lambda: latest[0])
    sender.start()
    latest[0] = b.snapshot()
    wait_until(lambda: len(outbox.sent) > 2)
    sender.stop()
    assert {snapshot.epoch for snapshot in outbox.sent} == {b.EPOCH}
    assert [one.exports[0].up for one in outbox.sent][:2] == [None, True]


def test_a_failing_exporter_is_down_with_its_error_and_recovers() -> None:
    outbox = Outbox()
    outbox.error = KeyError("x")
    sender = Sender(outbox, b.snapshot)
    sender.start()
    wait_until(lambda: sender.latest().exports[0].up is False)
    assert sender.latest().exports[0].error == "KeyError: 'x'"
    outbox.error = None
    wait_until(lambda: sender.latest().exports[0].up)
    last = sender.latest().exports[0].last_success
    outbox.error = KeyError("y")
    wait_until(lambda: sender.latest().exports[0].error == "KeyError: 'y'")
    sender.stop()
    retained = sender.latest().exports[0].last_success
    assert last is not None
    assert retained is not None
    assert retained >= last
