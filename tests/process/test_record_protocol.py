"""A reader of a process that only writes reads nothing half-written, and refuses nothing."""

from __future__ import annotations

from support import protocol

DIFFERENT = 500  # images, so that the writer was at work however busy the machine is


def test_a_counter_is_never_read_torn() -> None:
    with protocol.written("steps") as slot:
        found = protocol.read_steps(slot, DIFFERENT)
    assert found.torn == 0


def test_a_sealed_block_is_never_read_torn_or_out_of_order() -> None:
    with protocol.written("blocks") as slot:
        found = protocol.read_blocks(slot, DIFFERENT)
    assert (found.torn, found.backwards) == (0, 0)
    assert found.refused < found.reads / 20, "a store spares the last whole block"
