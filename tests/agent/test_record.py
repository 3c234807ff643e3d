"""The record's bytes: golden, round trips, consistent reads while a writer stores, refusals."""

from __future__ import annotations

import contextlib
import hashlib
import struct
import threading
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmwatch import record
from warmwatch.record import CompileCounts, Header, Identity, StepCounts, Warmup

U64 = st.integers(0, 2**64 - 1)


def image(
    steps: StepCounts | None = None,
    compile: CompileCounts | None = None,
    identity: Identity | None = None,
    bins: tuple[int, ...] = (0,) * record.BINS,
) -> bytes:
    data = bytearray(record.SIZE)
    parts = (
        (0, record.pack_header(Header(warm_steps=3, attached_ns=5, attached_epoch_ns=7))),
        (record.IDENTITY_OFFSET, record.pack_identity(identity or Identity(run="gpt2"))),
        (record.STEPS_OFFSET, record.pack_steps(steps or StepCounts())),
        (record.COMPILE_OFFSET, record.pack_compile(1, compile or CompileCounts())),
        (record.CLEAN_BINS_OFFSET, struct.pack(f"<{record.BINS}Q", *bins)),
    )
    for offset, part in parts:
        data[offset : offset + len(part)] = part
    return bytes(data)


def distinct_counts() -> CompileCounts:
    """Every word another number, so that two swapped fields show."""
    words = list(range(1001, 1001 + record.COMPILE_WORDS))
    data = bytearray(image())
    record.COMPILE_STRUCT.pack_into(data, record.COMPILE_OFFSET, 9, *words, 9)
    slot = record.unpack([bytes(data)] * 3)
    assert slot is not None
    return slot.compile


def test_the_layout_of_version_1_is_pinned() -> None:
    """Moving, adding or reordering anything in the slot is a new VERSION."""
    steps = StepCounts(steps=4, last_step_ns=8, last_duration_ns=15)
    identity = Identity(run="gpt2", launch="process:1", rank=3, hooks=("events",))
    data = image(steps, distinct_counts(), identity, tuple(range(record.BINS)))
    assert (record.VERSION, len(data)) == (1, 12288)
    assert hashlib.sha256(data).hexdigest() == (
        "619fa24e6a0408375dc11cf4322210cb70eea353ea93a9a7868e6abf063e8ee5"
    )


def test_the_histogram_edges_of_version_1_are_pinned() -> None:
    edges = ",".join(map(str, record.BOUNDS_NS)).encode()
    assert hashlib.sha256(edges).hexdigest() == (
        "ddc4f7ac21d72fc5684e6d90ebafc103b384ec30a673b8a7d83679a318b07713"
    )


@given(st.lists(U64, min_size=record.COMPILE_WORDS, max_size=record.COMPILE_WORDS))
def test_every_compile_word_survives_the_round_trip(words: list[int]) -> None:
    data = bytearray(image())
    record.COMPILE_STRUCT.pack_into(data, record.COMPILE_OFFSET, 2, *words, 2)
    slot = record.unpack([bytes(data)] * 3)
    assert slot is not None
    assert record.pack_compile(2, slot.compile) == record.COMPILE_STRUCT.pack(2, *words, 2)


@given(st.builds(StepCounts, **{f.name: U64 for f in fields(StepCounts)}))
def test_every_step_count_survives_the_round_trip(steps: StepCounts) -> None:
    slot = record.unpack([image(steps)] * 3)
    assert slot is not None
    assert slot.steps == steps


def test_words_are_found_by_their_names() -> None:
    counts = distinct_counts()
    first = 1001
    assert counts.begun == first + record.COMPILE_INDEX["begun"]
    assert counts.first_warmup == Warmup(
        **{f.name: first + record.COMPILE_INDEX[f"first_warmup.{f.name}"] for f in fields(Warmup)}
    )
    assert counts.cache_misses[0] == first + record.COMPILE_INDEX["cache_misses"]


@given(
    st.builds(
        Identity,
        run=st.text(min_size=1, max_size=3000),
        host=st.text(max_size=3000),
        rank=st.integers(0, 100_000),
        world_size=st.none() | st.integers(1, 100_000),
        hooks=st.tuples(st.sampled_from(("events", "optimizer"))),
        tokens_per_step=st.none() | st.integers(0, 2**60),
    )
)
def test_an_identity_of_any_text_fits_and_keeps_its_numbers(identity: Identity) -> None:
    packed = record.pack_identity(identity)
    assert len(packed) <= record.STEPS_OFFSET - record.IDENTITY_OFFSET
    back = record.unpack_identity(packed.ljust(2048, b"\0"))
    assert identity.run.startswith(back.run)
    assert (back.rank, back.world_size, back.hooks) == (
        identity.rank,
        identity.world_size,
        identity.hooks,
    )


def test_a_block_that_is_being_written_is_never_taken() -> None:
    """Three images around a store: none of the mixtures passes for a whole block."""
    old, new = image(StepCounts(steps=1)), image(StepCounts(steps=2, last_step_ns=77))
    at = record.STEPS_OFFSET
    for cut in range(0, record.STEPS_STRUCT.size + 1, 8):
        torn = old[:at] + new[at : at + cut] + old[at + cut :]
        for images in ((old, torn, torn), (torn, torn, torn), (torn, torn, new), (old, torn, new)):
            slot = record.unpack(images)
            if slot is not None:
                assert slot.steps in (StepCounts(steps=1), StepCounts(steps=2, last_step_ns=77))


def test_a_reader_beside_a_busy_writer_sees_whole_blocks_only() -> None:
    shared = bytearray(image())
    done = threading.Event()

    def write() -> None:
        for n in range(1, 60_000):
            record.STEPS_STRUCT.pack_into(shared, record.STEPS_OFFSET, n, n, n, n)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = 0
    while not done.is_set():
        slot = record.unpack([bytes(shared) for _ in range(3)])
        if slot is not None:
            counts = slot.steps
            assert counts.steps == counts.last_step_ns == counts.last_duration_ns >= seen
            seen = counts.steps
    writer.join()


def test_an_identity_that_changes_between_images_is_read_again() -> None:
    one, other = image(identity=Identity(run="a")), image(identity=Identity(run="b"))
    assert record.unpack((one, one, other)) is None


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "foreign"),
        (b"PNG" + bytes(record.SIZE), "foreign"),
        (image()[:5000], "torn record: 5000 bytes of 12288"),
        (image()[:8] + b"\2" + image()[9:], "version 2, this warmwatch reads version 1"),
        (image()[:70] + b"\xff" * 30 + image()[100:], "identity cannot be read"),
    ],
)
def test_what_cannot_be_read_is_refused_in_words(data: bytes, words: str) -> None:
    with pytest.raises(record.RecordError, match=words):
        record.unpack([data] * 3)


@given(st.binary(max_size=200), st.integers(0, record.SIZE))
def test_any_damage_is_refused_or_read_but_never_crashes(damage: bytes, at: int) -> None:
    data = (image()[:at] + damage + image()[at + len(damage) :])[: record.SIZE]
    with contextlib.suppress(record.RecordError):
        record.unpack([data] * 3)


@given(st.lists(st.integers(100_000, 10**13), min_size=1), st.sampled_from((0.5, 0.9, 0.99)))
def test_a_quantile_is_within_a_bin_of_the_true_one(durations: list[int], q: float) -> None:
    from bisect import bisect_left

    bins = [0] * record.BINS
    for duration in durations:
        bins[bisect_left(record.BOUNDS_NS, duration)] += 1
    ordered = sorted(durations)
    true = ordered[max(0, -int(-q * len(ordered) // 1) - 1)]
    read = record.quantile_ns(bins, q)
    assert read is not None
    assert abs(read - true) <= 0.08 * true + 100_000


def test_no_durations_have_no_quantile() -> None:
    assert record.quantile_ns([0] * record.BINS, 0.5) is None


def test_prometheus_buckets_fall_on_bin_edges() -> None:
    for exponent in range(-3, 4):
        for mantissa in (1, 2.5, 5):
            assert round(mantissa * 10 ** (exponent + 9)) in record.BOUNDS_NS


def test_a_chosen_directory_is_the_only_one() -> None:
    assert record.directories({"WARMWATCH_DIR": "/data"}, 7) == ("/data",)
    assert record.directories({}, 7) == (
        "/run/warmwatch",
        "/run/user/7/warmwatch",
        "/tmp/warmwatch-7",
    )
    assert record.directories({"XDG_RUNTIME_DIR": "/x", "TMPDIR": "/y"}, 7)[1:] == (
        "/x/warmwatch",
        "/y/warmwatch-7",
    )
