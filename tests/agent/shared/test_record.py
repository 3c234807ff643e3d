"""The record's bytes: golden, round trips, half-written blocks, refusals."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import struct
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Any, get_origin

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from warmwatch.shared import places, record, values
from warmwatch.shared.deployment import LABELS
from warmwatch.shared.record import Header, Identity, StepCounts, Warmup
from warmwatch.shared.record import identity as record_identity
from warmwatch.shared.record.facts import flatten
from warmwatch.shared.record.sealed_blocks import Block, newest, store, unseal
from warmwatch.shared.values import COMPILE_CACHES, printable

U64 = st.integers(0, 2**64 - 1)


HEADER = Header(warm_steps=3, attached_ns=5, attached_epoch_ns=7)
RUN = Identity(run="gpt2")


def image(
    words: Sequence[int] = (0,) * record.COMPILE_WORDS,
    identity: Identity = RUN,
    steps: StepCounts | None = None,
    bins: Sequence[int] = (0,) * record.BINS,
    touched: Sequence[int] = (0,) * record.BINS,
) -> bytearray:
    data = record.blank()
    packed = record.pack_header(HEADER)
    data[: len(packed)] = packed
    record.store_identity(data, identity)
    record.store_compile(data, list(words))
    for words, counts in zip(record.histograms(data), (bins, touched), strict=True):
        for place, count in enumerate(counts):
            words[place] = count
    hot = record.hot_words(data)
    for name, place in record.STEPS_INDEX.items():
        hot[place] = getattr(steps or StepCounts(), name)
    return data


def read(data: bytes) -> record.Slot:
    return record.unpack(bytes(data))


DISTINCT = range(1001, 1001 + record.COMPILE_WORDS)  # two swapped fields show


def test_the_layout_of_version_1_is_pinned() -> None:
    assert (record.VERSION, record.SIZE) == (1, 24576)
    data = image(DISTINCT, bins=range(record.BINS))
    assert struct.unpack_from("<8sIIQQQ", data) == (b"WARMWTCH", 1, 24576, 3, 5, 7)
    assert (record.STEPS_OFFSET, record.CLEAN_BINS_OFFSET) == (64, 4096)
    assert (record.COMPILE_BINS_OFFSET, record.HOT_END) == (8192, 12288)
    assert struct.unpack_from("<QQ", data, record.COMPILE_BLOCK.place(2)) == (
        2,
        8 * record.COMPILE_WORDS,
    )


def test_the_ring_of_the_last_steps_is_behind_the_clean_bins() -> None:
    data = image(bins=(9,) * record.BINS, touched=(9,) * record.BINS, steps=StepCounts(steps=2))
    ring = record.ring(data)
    ring[0], ring[1], ring[-1] = 70, 80, 90
    assert struct.unpack_from("<2Q", data, 7680) == (70, 80)
    assert struct.unpack_from("<2Q", data, 8184) == (90, 9)
    slot = read(data)
    assert slot.recent == (80, 70)
    assert slot.steps.last_duration_ns == 80
    record.hot_words(data)[record.STEPS_INDEX["steps"]] = 1
    assert read(data).steps.last_duration_ns == 70


def test_the_identity_is_read_alone_too_and_a_blank_slot_has_counted_nothing() -> None:
    assert record.unpack_identity(bytes(image(identity=RUN))) == RUN
    blank = record.blank()
    packed = record.pack_header(HEADER)
    blank[: len(packed)] = packed
    record.store_identity(blank, RUN)
    slot = read(blank)
    assert (slot.compile, slot.steps) == (record.CompileCounts(), StepCounts())


def test_a_field_that_a_newer_agent_appended_is_ignored() -> None:
    data = image(DISTINCT)
    before = read(data).compile
    words = struct.pack(f"<{record.COMPILE_WORDS + 3}Q", *DISTINCT, 7, 8, 9)
    store(data, record.COMPILE_BLOCK, words)
    assert read(data).compile == before
    store(data, record.COMPILE_BLOCK, words[: 8 * record.COMPILE_WORDS - 8])
    store(data, record.COMPILE_BLOCK, words[: 8 * record.COMPILE_WORDS - 8])
    with pytest.raises(record.RecordError, match="its compile block has"):
        read(data)


def pinned(names: object) -> str:
    return hashlib.sha256(repr(names).encode()).hexdigest()[:16]


def test_fields_are_only_appended() -> None:
    """Those that version 1 began with are the first, in this order."""
    steps, compile, identity = (
        list(kind._fields) for kind in (StepCounts, record.CompileCounts, Identity)
    )
    assert pinned(steps[:6]) == "831d76ddeaaba735"
    assert pinned(compile[:62]) == "97e0c378f161cca7"
    assert pinned(identity[:34]) == "cd38b307b123923c"


def test_the_closed_lists_are_only_appended_to() -> None:
    """A position in one is a code in the slot, and its name is public."""
    assert pinned(record.PHASES[:8]) == "d565fdd9bf609dda"
    assert pinned(record.KINDS[:8]) == "146bfd1fe6d75ff7"
    assert pinned(record.CATEGORIES[:11]) == "f3d8852645ea907f"
    assert pinned(record.CACHES[:3]) == "dd524a2b28f985ac"
    assert pinned(record.ENDS[:5]) == "15e3972eff936390"
    assert record.DISABLED[:4] == ("", "environment", "stance", "config")
    assert record.PROGRESS[:2] == ("kernels", "choices")
    assert record.MEMORY[:4] == ("allocated", "reserved", "peak_allocated", "peak_reserved")
    assert record.COMPILE_CACHES[:2] == ("inductor", "triton")
    assert values.DTYPES == ("bfloat16", "float16", "float8", "tf32", "float32")


def test_the_files_of_a_record_are_pinned() -> None:
    files = (record.SLOT, record.JOURNAL, record.EXIT, record.STACKS)
    assert files == ("slot", "events.jsonl", "exit", "stacks")
    assert record.JOURNAL_LIMIT == 8_388_608


def test_unknown_values_have_their_defaults() -> None:
    """A missing count is 0, a missing name empty, a missing number that may be 0 ``None``."""
    assert flatten(record.CompileCounts()) == [0] * record.COMPILE_WORDS
    assert flatten(StepCounts()) == [0] * len(record.STEPS_INDEX)
    unknown = Identity(run="gpt2")._asdict()
    assert unknown.pop("run") == "gpt2"
    assert {name for name, value in unknown.items() if value is None} == {
        *("local_rank", "world_size", "clock_offset_ns"),
        *("tokens_per_step", "samples_per_step", "flops_per_step", "collective_timeout"),
        *("parameters", "parameters_seen", "compile_threads"),
        *("baseline_steps", "baseline_seconds", "expected_ranks", "flops_counted"),
    }
    assert {name for name, value in unknown.items() if value == 0} == {"rank", "attempt", "pid"}
    assert {name for name, value in unknown.items() if value == ()} == {
        "hooks",
        "missing",
        "gpus",
        "flops_excluded",
    }
    assert {name for name, value in unknown.items() if value == ""} == {
        *("launch", "launcher", "host", "boot_id", "python", "torch", "agent"),
        *("collective_backend", "dtype", "started_by", "unnumbered", "child"),
        *("script", "commit", "cuda", "triton"),
    }
    assert {name for name, value in unknown.items() if value == {}} == {
        *("caches", "flops_by_dtype", "labels"),
    }


def test_the_histogram_edges_of_version_1_are_pinned() -> None:
    edges = ",".join(map(str, record.BOUNDS_NS)).encode()
    assert hashlib.sha256(edges).hexdigest() == (
        "ddc4f7ac21d72fc5684e6d90ebafc103b384ec30a673b8a7d83679a318b07713"
    )


@given(st.lists(U64, min_size=record.COMPILE_WORDS, max_size=record.COMPILE_WORDS))
def test_every_compile_counter_survives_the_round_trip(words: list[int]) -> None:
    assert flatten(read(image(words)).compile) == words


@given(st.builds(StepCounts, **dict.fromkeys(StepCounts._fields, U64)))
def test_every_step_count_survives_the_round_trip(steps: StepCounts) -> None:
    assert read(image(steps=steps)).steps == steps


CLEAN_BINS, TOUCHED_BINS = range(1, 1 + record.BINS), range(5001, 5001 + record.BINS)


def test_the_header_and_both_histograms_survive_the_round_trip() -> None:
    data = image(DISTINCT, bins=CLEAN_BINS, touched=TOUCHED_BINS)
    slot = read(data)
    assert slot.header == record.check_header(data) == HEADER
    assert (slot.clean_bins, slot.compile_bins) == (tuple(CLEAN_BINS), tuple(TOUCHED_BINS))
    for at, first in ((4096, 1), (8192, 5001)):
        assert struct.unpack_from("<2Q", data, at) == (first, first + 1)
    assert flatten(slot.compile) == list(DISTINCT), "nothing lies upon another"


def test_unchanged_blocks_are_not_unpacked_again() -> None:
    before = read(image(DISTINCT))
    after = bytes(image(identity=Identity(run="other"), touched=TOUCHED_BINS))
    slot = record.with_hot_words(before, after, before.compile_bins)
    assert (slot.identity, slot.compile) == (before.identity, before.compile)
    assert slot.compile_bins == before.compile_bins
    assert record.with_hot_words(before, after).compile_bins == tuple(TOUCHED_BINS)


def test_counters_are_found_by_their_names() -> None:
    counts = read(image(DISTINCT)).compile
    first = 1001
    assert counts.begun == first + record.COMPILE_INDEX["begun"]
    assert counts.first_warmup == Warmup(
        **{name: first + record.COMPILE_INDEX[f"first_warmup.{name}"] for name in Warmup._fields}
    )
    assert counts.cache_misses[0] == first + record.COMPILE_INDEX["cache_misses"]


@given(
    st.builds(
        lambda **known: Identity(**known),  # else it makes up what is not given here
        run=st.text(min_size=1, max_size=3000),
        host=st.text(max_size=3000),
        rank=st.integers(0, 100_000),
        world_size=st.none() | st.integers(1, 100_000),
        hooks=st.tuples(st.sampled_from(("events", "optimizer"))),
        tokens_per_step=st.none() | st.integers(1, 2**53),
    )
)
def test_an_identity_of_any_text_fits_and_retains_its_numbers(identity: Identity) -> None:
    back = read(image(identity=identity)).identity
    whole = identity.run.encode("utf-8", "replace").decode()
    assert printable(whole).startswith(back.run)
    assert back.run.isprintable()
    assert (back.rank, back.world_size, back.hooks, back.tokens_per_step) == (
        identity.rank,
        identity.world_size,
        identity.hooks,
        identity.tokens_per_step,
    )


def test_all_labels_of_the_largest_size_fit_and_unknown_ones_are_left_out() -> None:
    labels = {name: f"{name[:1]}{'x' * 99}" for name in dict.fromkeys(LABELS.values())}
    texts = dict.fromkeys(("host", "launch", "script", "commit", "torch", "cuda"), "\u00e9" * 200)
    gpus = tuple(f"GPU-{'0' * 32}{at}" for at in range(16))
    whole = Identity(run="r" * 200, labels=labels, gpus=gpus, hooks=("events",) * 40, **texts)
    back = read(image(identity=whole)).identity.labels
    assert back.keys() == labels.keys()
    assert all(labels[name].startswith(value) for name, value in back.items())
    assert read(image(identity=Identity(run="gpt2", labels=labels))).identity.labels == labels
    strange = {"pod": "a\nb", "node": "x" * 101, "jobset": 7, "colour": "red", "container": "main"}
    body = json.dumps({"run": "gpt2", "labels": strange}).encode()
    assert record_identity.unpack_identity(body).labels == {"container": "main"}


def test_a_name_with_invalid_unicode_retains_its_valid_part() -> None:
    assert read(image(identity=Identity(run="a\udcffb"))).identity.run == "a?b"


def rewritten(block: Block, payload: bytes) -> bytearray:
    """A slot in which a block was stored a second time."""
    data = image()
    store(data, block, payload)
    return data


def test_a_block_stored_again_is_read_as_the_new_one() -> None:
    data = image(DISTINCT)
    for first in (7, 8, 9):
        words = [first] * record.COMPILE_WORDS
        record.store_compile(data, words)
        assert flatten(read(data).compile) == words


@given(st.data())
def test_an_interrupted_store_leaves_the_previous_block_readable(data: st.DataObject) -> None:
    """Any mixture of old and new bytes, in any order of the stores, is old or new and no third."""
    old = image(DISTINCT)
    new = bytearray(old)
    record.store_compile(new, [5] * record.COMPILE_WORDS)
    changed = [at for at in range(record.SIZE) if old[at] != new[at]]
    visible = data.draw(st.sets(st.sampled_from(changed)))
    mixed = bytearray(old)
    for at in visible:
        mixed[at] = new[at]
    expected = [5] * record.COMPILE_WORDS if len(visible) == len(changed) else list(DISTINCT)
    assert flatten(read(mixed).compile) == expected


@given(st.integers(0, record.COMPILE_BLOCK.room - 1))
def test_an_interrupted_writer_never_overwrites_the_last_complete_block(stopped: int) -> None:
    """It stores into the same place again, so a reader meanwhile finds the block before."""
    data = image(DISTINCT)
    torn = bytearray(data)
    record.store_compile(torn, [5] * record.COMPILE_WORDS)
    begin = record.COMPILE_BLOCK.place(3) + 24  # the payload comes first, from here on
    data[begin : begin + stopped] = torn[begin : begin + stopped]
    before = bytes(data)
    record.store_compile(data, [6] * record.COMPILE_WORDS)
    retained = slice(record.COMPILE_BLOCK.place(2), record.COMPILE_BLOCK.place(2) + 2048)
    assert data[retained] == before[retained]
    assert flatten(read(data).compile) == [6] * record.COMPILE_WORDS


def test_a_block_in_the_wrong_place_is_refused() -> None:
    data, block = image(DISTINCT), record.COMPILE_BLOCK
    store(data, block, bytes(8 * record.COMPILE_WORDS))
    older, newer = sorted((block.place(0), block.place(1)), key=lambda at: data[at])
    data[older : older + block.room] = data[newer : newer + block.room]
    data[newer : newer + block.room] = bytes(block.room)
    with pytest.raises(record.TornError, match="both places"):
        read(data)


def test_a_payload_that_does_not_fit_is_refused() -> None:
    with pytest.raises(record.RecordError, match="a block of 4073 bytes, 4072 are there"):
        store(image(), record.IDENTITY_BLOCK, b"x" * 4073)


def test_a_payload_that_just_fits_is_stored_completely() -> None:
    for block in (record.IDENTITY_BLOCK, record.COMPILE_BLOCK):
        data, payload = image(), bytes(range(256)) * 16
        for first in (b"a", b"b"):  # in either place
            whole = first + payload[: block.limit - 1]
            store(data, block, whole)
            assert newest(bytes(data), block, unseal) == whole


def test_the_steps_are_never_older_than_the_compile_block() -> None:
    """They are read first: a step may be marked, and make the rank warm, before the block is."""
    words = [0] * record.COMPILE_WORDS
    for name, value in {
        "clean_after": 5,
        "irregular_step_ns": 500,
        "last_warmup.warm_ns": 800,
    }.items():
        words[record.COMPILE_INDEX[name]] = value
    steps = read(image(words, steps=StepCounts(steps=7, last_step_ns=700))).steps
    assert (steps.steps, steps.last_step_ns) == (8, 800)
    words[record.COMPILE_INDEX["irregular_step_ns"]] = 900  # the warm-up was before that
    steps = read(image(words, steps=StepCounts(steps=4, last_step_ns=700))).steps
    assert (steps.steps, steps.last_step_ns) == (5, 900)
    later = StepCounts(steps=100, last_step_ns=1000)
    assert read(image(words, steps=later)).steps == later


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "magic number"),
        (b"PNG" + bytes(record.SIZE), "magic number"),
        (image()[:39], "magic number"),
        (image()[:40], "torn record: 40 bytes of 24576"),
        (image()[:5000], "torn record: 5000 bytes of 24576"),
        (
            image()[:15] + b"\1" + image()[16:],
            "a record of 16801792 bytes, not 24576: its size is damaged",
        ),
        (
            image()[:8] + b"\0" + image()[9:],
            "version 0, this warmwatch reads version 1: upgrade the training's warmwatch",
        ),
        (
            image()[:8] + b"\2" + image()[9:],
            "version 2, this warmwatch reads version 1: upgrade the monitor's warmwatch",
        ),
        (rewritten(record.IDENTITY_BLOCK, b"\xff" * 30), r"its identity cannot be read \(.*\)$"),
        (rewritten(record.COMPILE_BLOCK, bytes(80)), "compile block has 80 bytes"),
        (image()[: record.HOT_END] + bytes(12288), "both places of a block"),
    ],
)
def test_an_unreadable_slot_is_refused_with_a_message(data: bytes, words: str) -> None:
    with pytest.raises(record.RecordError, match=words):
        read(data)


WRONG = {
    "run": ["", 7, None, "x" * 201, [], {}, "\ud800"],
    "host": [7, None, ["a"], "x" * 201, "a\udfff"],
    "rank": ["x", -1, 10**7 + 1, True, 1.5, None, 10**4000],
    "world_size": ["x", 30_000_000, -1, False, [8]],
    "pid": [-5, "1"],
    "clock_offset_ns": ["x", True, 1.5, [0], 2**62, -(2**62)],
    "gpus": [[1], "GPU-1", ["x" * 201], [["a"]], ["a"] * 257, {"a": 1}],
    "tokens_per_step": [0, -1, 2**53 + 1, 1.5, True, "491520"],
    "script": [7, "x" * 201],
    "caches": [
        [],
        "warm",
        None,
        {"triton": ["warm"]},
        {"inductor": None},
        {"inductor": "warm", "triton": 7},
    ],
    "labels": [[], "pod", None, 7],
    "compile_threads": [-1, 1.5, "32"],
    "baseline_seconds": [0, -1.0, math.nan, "0.04"],
    "flops_per_step": [0, -1.0, math.inf, math.nan, "1e15", True, 10**400],
    "flops_by_dtype": [[], "bf16", 7, {"bfloat16": -1.0}],
}


@pytest.mark.parametrize("name", WRONG)
def test_a_field_of_the_identity_that_is_wrong_is_named(name: str) -> None:
    for value in WRONG[name]:
        body = json.dumps({"run": "gpt2", "torch": "2.13.0", name: value}).encode()
        expected = f"identity's {name} |its run has no name"
        with pytest.raises(record.RecordError, match=expected):
            record_identity.unpack_identity(body)


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("run", "x" * 200),
        ("gpus", ["x" * 200] * 256),
        ("rank", 10**6),
        ("rank", 0),
        ("tokens_per_step", 2**53),
        ("tokens_per_step", 1),
        ("samples_per_step", 2**53),
        ("parameters", 2**53),
        ("parameters_seen", 2**53),
        ("clock_offset_ns", 2**62 - 1),
        ("clock_offset_ns", 1 - 2**62),
        ("flops_per_step", 1e300),
        ("flops_per_step", 1),
        ("world_size", None),
        ("caches", {"inductor": "cold", "triton": "warm"}),
        ("compile_threads", 0),
        ("torch", ""),
    ],
)
def test_a_field_of_the_identity_may_have_its_maximum(name: str, most: object) -> None:
    identity = record_identity.unpack_identity(json.dumps({"run": "gpt2", name: most}).encode())
    assert getattr(identity, name) == (tuple(most) if isinstance(most, list) else most)


def test_control_characters_are_escaped_in_lists_too() -> None:
    body = json.dumps({"run": "a", "hooks": ["a\x1b[0m"], "host": "b\x1b"}).encode()
    identity = record_identity.unpack_identity(body)
    assert identity.host.isprintable()
    assert [hook.isprintable() for hook in identity.hooks] == [True]


def test_a_cache_of_a_newer_agent_is_ignored() -> None:
    reported = {"inductor": "warm", "aot": {"dir": 7}}
    identity = record_identity.unpack_identity(
        json.dumps({"run": "a", "caches": reported}).encode()
    )
    assert identity.caches == {"inductor": "warm"}


@pytest.mark.parametrize("value", [1.001e300, 2e300, 10**301])
def test_an_impossibly_large_amount_is_refused(value: float) -> None:
    body = json.dumps({"run": "gpt2", "flops_per_step": value}).encode()
    with pytest.raises(record.RecordError, match="flops_per_step is not positive and finite"):
        record_identity.unpack_identity(body)


def test_an_invalid_field_is_described_in_the_message() -> None:
    for name, value, found in (
        ("run", 7, "is not text: 7"),
        ("run", "x" * 201, "has more than 200 characters: 'xxx"),
        ("run", "\ud800", "is not Unicode text: "),
        ("rank", 1.5, "is not a whole number: 1.5"),
        ("rank", -1, "is not between 0 and 1000000: -1"),
        ("world_size", 10_000_000, "is not between 0 and 1000000: 10000000"),
        ("pid", 10_000_001, "is not between 0 and 10000000: 10000001"),
        ("tokens_per_step", 0, "is not between 1 and 9007199254740992: 0"),
        ("tokens_per_step", True, "is not a whole number: True"),
        ("clock_offset_ns", 2**62, "is more than any clock is apart: 46"),
        ("clock_offset_ns", False, "is not a whole number: False"),
        ("flops_per_step", "1", "is not a number: '1'"),
        ("gpus", "GPU-1", "is not a list: 'GPU-1'"),
        ("gpus", ["a"] * 257, "has more than 256 entries: ['a', 'a'"),
        ("gpus", [1], "is not text: [1]"),
        ("caches", ["warm"], "is no table: ['warm']"),
        ("caches", {"triton": 7}, "is neither cold nor warm: {'triton': 7}"),
    ):
        body = json.dumps({"run": "gpt2", name: value}).encode()
        with pytest.raises(record.RecordError) as refused:
            record_identity.unpack_identity(body)
        assert str(refused.value).startswith(f"its identity's {name} {found}")
        assert len(str(refused.value)) < 160
        reported = str(refused.value).partition(": ")[2]
        assert reported == repr(value)[:80]


@pytest.mark.parametrize("body", [b"", b"[]", b"7", b"null", b"[" * 4000, b'"run"', b'{"run":{}}'])
def test_an_invalid_identity_is_refused(body: bytes) -> None:
    with pytest.raises(record.RecordError, match=r"its identity|no name"):
        record_identity.unpack_identity(body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


# values as an agent may write them, so that not every reading is a refusal
TEXTS = st.text(st.characters(), max_size=9)
LIKELY = (
    *(TEXTS, st.integers(0, 10), st.floats(0.1, 1e9), st.lists(TEXTS, max_size=3)),
    st.dictionaries(st.sampled_from((*COMPILE_CACHES, "x")), st.sampled_from(("cold", "warm", ""))),
)


@given(st.dictionaries(st.sampled_from(Identity._fields), JSON | st.one_of(LIKELY), max_size=3))
@example({"gpus": ["GPU-1", 7], "caches": {COMPILE_CACHES[0]: "cold", "x": 7}})
@example({"gpus": ["GPU-1"], "caches": {COMPILE_CACHES[0]: "cold", "x": 7}})
def test_every_readable_identity_has_fields_of_the_right_types(known: dict[str, object]) -> None:
    try:
        identity = record_identity.unpack_identity(json.dumps({"run": "a", **known}).encode())
    except record.RecordError:
        return
    for name, value in identity._asdict().items():
        of: Any = Identity.__annotations__[name]
        optional = isinstance(of, UnionType)
        of = of.__args__[0] if optional else of
        kind = (int, float) if of is float else get_origin(of) or of
        assert isinstance(value, kind) or (optional and value is None)
        assert not isinstance(value, bool)
        if kind is tuple:
            assert all(isinstance(one, str) for one in value)
        if kind is Mapping:
            assert all(isinstance(one, str) for pair in value.items() for one in pair)


def test_unknown_keys_of_a_newer_agent_are_ignored() -> None:
    body = json.dumps({"run": "gpt2", "color": ["red"]}).encode()
    assert record_identity.unpack_identity(body) == RUN


@given(st.binary(max_size=200), st.integers(0, record.SIZE))
def test_any_damage_is_refused_or_read_but_never_crashes(damage: bytes, at: int) -> None:
    data = (image()[:at] + damage + image()[at + len(damage) :])[: record.SIZE]
    with contextlib.suppress(record.RecordError):
        assert isinstance(read(data), record.Slot)


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


LAST = record.BINS - 1
EDGES = (0, *record.BOUNDS_NS, record.BOUNDS_NS[-1])  # where each bin begins; the last has no end


@pytest.mark.parametrize(
    ("counts", "q", "place", "part"),
    [
        ({0: 4}, 0.5, 0, 0.5),
        ({0: 4}, 0.0, 0, 0.0),
        ({0: 4}, 1.0, 0, 1.0),
        ({5: 4}, 0.25, 5, 0.25),
        ({5: 4}, 0.0, 5, 0.0),
        ({5: 1, 9: 3}, 0.25, 5, 1.0),
        ({5: 1, 9: 3}, 0.5, 9, 1 / 3),
        ({5: 2, 6: 5, 9: 3}, 0.5, 6, 0.6),
        ({5: 2, 6: 5, 9: 3}, 0.9, 9, 2 / 3),
        ({1: 1, 2: 1}, 0.5, 1, 1.0),
        ({LAST - 1: 2}, 0.5, LAST - 1, 0.5),
        ({LAST: 2}, 0.5, LAST, 0.5),
        ({0: 1, LAST: 1}, 1.0, LAST, 1.0),
    ],
)
def test_a_quantile_is_interpolated_within_its_bin(
    counts: dict[int, int], q: float, place: int, part: float
) -> None:
    """As Prometheus reads one off a histogram: what is in a bin lies evenly in it."""
    bins = [counts.get(number, 0) for number in range(record.BINS)]
    low, high = EDGES[place], EDGES[place + 1]
    assert record.quantile_ns(bins, q) == pytest.approx(low + part * (high - low), abs=1e-3)


@pytest.mark.parametrize(
    ("counts", "longest"),
    [
        ({}, 0),
        ({0: 3}, 100_000),
        ({1: 1}, 105_000),
        ({0: 9, 7: 1}, 140_000),
        ({7: 1, LAST - 1: 1}, 10**13),
        ({LAST: 1}, 10**13),
    ],
)
def test_the_longest_of_binned_durations_is_the_end_of_its_bin(
    counts: dict[int, int], longest: int
) -> None:
    bins = [counts.get(number, 0) for number in range(record.BINS)]
    assert record.longest_ns(bins) == longest


@pytest.mark.parametrize(
    ("count", "total", "median", "typical"),
    [
        (100, 3.61, 0.036, 0.0361),  # alike
        (100, 88.6, 0.036, 0.036),  # one of them held an evaluation
        (4, 420.0, 100.0, 105.0),  # as far apart as a bin is wide
        (4, 380.0, 100.0, 95.0),
        (4, 420.4, 100.0, 100.0),
        (4, 379.6, 100.0, 100.0),
        (None, 4.0, 1.0, 1.0),  # from a Prometheus without the value
        (4, None, 1.0, 1.0),
        (0, 0.0, None, None),
    ],
)
def test_steps_with_little_spread_have_their_mean_and_others_their_median(
    count: int | None, total: float | None, median: float | None, typical: float | None
) -> None:
    assert record.typical(count, total, median) == pytest.approx(typical)


@pytest.mark.parametrize(
    ("long", "expected"),
    [(25, 0.75 * 33 + 0.25 * 200), (13, 0.87 * 33 + 0.13 * 200), (12, 33), (1, 33), (60, 133.2)],
)
def test_steps_of_several_lengths_have_their_mean(long: int, expected: float) -> None:
    """Every fourth step waits for data: the median says nothing of that."""
    bins = [0] * record.BINS
    for ns, count in ((33_000_000, 100 - long), (200_000_000, long)):
        bins[bisect_left(record.BOUNDS_NS, ns)] += count
    total, median = (100 - long) * 0.033 + long * 0.2, record.quantile_ns(bins, 0.5)
    assert median is not None
    found = record.typical(100, total, median / 1e9, bins, unit_ns=10**9)
    assert found == pytest.approx(expected / 1000, rel=0.025)


@pytest.mark.parametrize(("long", "rises"), [(125, True), (63, True), (62, False), (3, False)])
def test_few_steps_have_a_mean_if_they_recur_and_take_most_of_the_time(
    long: int, rises: bool
) -> None:
    bins = [0] * record.BINS
    for ns, count in ((5_000_000, 1000 - long), (400_000_000, long)):
        bins[bisect_left(record.BOUNDS_NS, ns)] += count
    total = (1000 - long) * 0.005 + long * 0.4
    found = record.typical(1000, total, 0.005, bins, unit_ns=10**9)
    assert found == pytest.approx(total / 1000 if rises else 0.005)


def test_no_durations_have_no_quantile() -> None:
    assert record.quantile_ns([0] * record.BINS, 0.5) is None


def test_prometheus_buckets_fall_on_bin_edges() -> None:
    for exponent in range(-3, 4):
        for mantissa in (1, 2.5, 5):
            assert round(mantissa * 10 ** (exponent + 9)) in record.BOUNDS_NS


def test_an_explicit_directory_is_the_only_one() -> None:
    assert places.directories({"WARMWATCH_DIR": "/data"}, 7) == ("/data",)
    assert places.directories({}, 7) == (
        "/run/warmwatch",
        "/run/user/7/warmwatch",
        "/dev/shm/warmwatch-7",
        "/tmp/warmwatch-7",
    )
    assert places.directories({"XDG_RUNTIME_DIR": "/x", "TMPDIR": "/y"}, 7)[1:] == (
        "/x/warmwatch",
        "/dev/shm/warmwatch-7",
        "/y/warmwatch-7",
    )
