"""The writer between two calls of Python: a signal handler may raise at each of them."""

from __future__ import annotations

import os
import re
import signal
import sys
import warnings
from array import array
from pathlib import Path
from types import FrameType

import pytest

from support import slots
from support.filesystems import NotHereError, full, mounted
from support.records import wait_until
from warmwatch.recorder import writer as _writer
from warmwatch.recorder.writer import Writer
from warmwatch.shared import record
from warmwatch.shared.record import Header, Identity

HEADER = Header(warm_steps=3, attached_ns=1, attached_epoch_ns=1)
OURS = (
    *("/recorder/writer.py", "/recorder/disk_flusher.py", "/process/threads.py"),
    *("/sealed_blocks.py", "/layout.py", "/record/identity.py"),
)


class _HandlerError(Exception):
    pass


def raising_at(number: int, call: object) -> bool:
    """Whether ``call`` came to its end before its ``number``-th event: there, a handler raises.

    Where a Python function begins or ends, or C has been called: that is where one can.
    """
    left = number

    def profile(frame: FrameType, event: str, _what: object) -> None:
        nonlocal left
        if event != "c_call" and frame.f_code.co_filename.endswith(OURS):
            left -= 1
            if left == 0:
                raise _HandlerError

    sys.setprofile(profile)
    try:
        call()  # type: ignore[operator]
    except _HandlerError:
        return False
    finally:
        sys.setprofile(None)
    return True


def test_a_name_is_stored_even_if_a_signal_handler_raises_during_a_store(
    memory: Path,
) -> None:
    writer = Writer()
    identity = writer.open([str(memory)], HEADER, Identity(run="t"), named=True)
    over = False
    for number in range(1, 400):
        late = identity._replace(rank=number)
        over = raising_at(number, lambda late=late: writer.set_identity(late))
        last = identity._replace(rank=1000 + number)
        writer.set_identity(last)
        assert slots.read(slots.only(memory)).identity == last, number
    writer.close()
    assert over, "the last of them were not raised in any more"


def test_an_interrupted_store_of_a_name_is_repeated_at_the_next_rare_write(memory: Path) -> None:
    writer = Writer()
    identity = writer.open([str(memory)], HEADER, Identity(run="t"), named=True)
    for number in range(3, 60):
        late = identity._replace(rank=number)
        raising_at(number, lambda late=late: writer.set_identity(late))
        writer.publish(array("Q", bytes(8 * record.COMPILE_WORDS)))
        assert slots.read(slots.only(memory)).identity == late, number
    writer.close()


def test_one_thread_copies_a_record_on_a_disk_even_if_a_signal_handler_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it does so while the thread is started, and the record waited for."""
    monkeypatch.setattr(_writer, "in_memory", lambda _: False)
    over = False
    for number in range(1, 200):
        writer, place = Writer(), tmp_path / str(number)
        mask, known = signal.pthread_sigmask(signal.SIG_BLOCK, ()), threads()
        over = raising_at(
            number,
            lambda writer=writer, place=place: writer.open(
                [str(place)], HEADER, Identity(run="t"), named=True
            ),
        )
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == mask, number
        last = Identity(run="t", rank=number)
        writer.set_identity(last)
        assert writer._flusher is None or writer.flush(60), number
        if writer._flusher is not None:
            assert slots.read(slots.only(place)).identity == last, number
            assert len(threads() - known) == 1, number
        writer.close()
        wait_until(lambda known=known: threads() <= known)
        if over:
            break
    assert over, "the last of them was not raised in any more"


def threads() -> set[str]:
    """By their numbers: those of another test may be about to end."""
    return {one.name for one in Path("/proc/self/task").iterdir()}


def created_in(*directories: Path) -> Path | None:
    """Where the record of a process was created."""
    writer = Writer()
    try:
        writer.open([str(one) for one in directories], HEADER, Identity(run="t"), named=True)
        return writer.folder.parent if writer.folder else None
    finally:
        writer.close()


def test_a_full_directory_is_passed_over_with_a_warning(tmp_path: Path) -> None:
    try:
        with mounted("tmpfs") as disk, full(disk, disk.place):
            better = disk.place / "records"
            why = re.escape(f"because {better} cannot be used (no space left on device); a monitor")
            with pytest.warns(UserWarning, match=why):
                assert created_in(better, tmp_path) == tmp_path
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                created_in(better, tmp_path)  # once
    except NotHereError as error:
        pytest.skip(str(error))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_another_user_s_directory_is_passed_over_with_a_warning(tmp_path: Path) -> None:
    better = tmp_path / "better"
    better.mkdir()
    os.chown(better, 12345, 12345)
    why = re.escape(f"{better} cannot be used (it belongs to user 12345); a monitor")
    with pytest.warns(UserWarning, match=why):
        assert created_in(better, tmp_path) == tmp_path


def test_a_directory_that_does_not_exist_is_passed_over_silently(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert created_in(tmp_path / "none" / "there", tmp_path) == tmp_path
