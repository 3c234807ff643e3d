"""The recorded parts of a compile cache's key: names and short hashes."""

from __future__ import annotations

import base64
import random
import string
import zlib

import pytest

from warmwatch.hooks.inductor.cache_events import cache_and_verdict_of
from warmwatch.ledger.compilations import DEVICE, LONGEST, ROOM, WrittenKeys, named

HASH = "tdtplk4bi2z5323x54vxeqty5btmlfvjppnyliq76kn5kezm5fa"


def on(index: int, shape: str = "[4, 4]") -> str:
    return (
        f"[{HASH}] example_inputs[0]: TensorMetadata(dtype=torch.float32, shape=torch.Size({shape}"
        f"), stride=(4, 1), device=device(type='cuda', index={index}), layout=torch.strided)"
    )


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("gm: GraphModule()\n\n\ndef forward(self, secret): return secret", "gm"),
        ("inductor_config[triton.cudagraphs]: False", "inductor_config[triton.cudagraphs]"),
        ("fx_kwargs[a patient's name]: 1", "fx_kwargs[...]"),
        ("custom[{'key': 'a patient'}]: 1", "custom[...]"),
        ("torch_version: <bytes>", "torch_version"),
    ],
)
def test_a_part_of_a_key_has_its_name_and_no_text(line: str, name: str) -> None:
    assert named([f"[{HASH}] {line}"]) == {name: HASH[:6]}


@pytest.mark.parametrize("line", ["", "a patient", "[x] y: z", f"[{HASH}] (a, patient): 1"])
def test_a_line_that_is_not_a_part_is_omitted(line: str) -> None:
    assert named([line]) == {}


def test_an_input_on_another_device_differs_only_in_the_device() -> None:
    first, second = named([on(0)]), named([on(1)])
    assert first["example_inputs[0]"] == second["example_inputs[0]"]
    assert (first[DEVICE], second[DEVICE]) == ("0", "1")
    assert named([on(0, "[8, 4]")])["example_inputs[0]"] != first["example_inputs[0]"]


def test_the_first_key_is_written_in_full_and_the_next_as_a_difference() -> None:
    written = WrittenKeys()
    lines = [f"[{HASH}] inductor_config[option{n}]: 1" for n in range(700)]
    first, second = written.packed("inductor_fx", lines), written.packed("inductor_fx", lines[1:])
    assert (first["whole"], second["whole"]) == (True, False)
    assert (first["parts"], second["parts"]) == (700, 699)
    assert unpacked(second["packed"]) == "inductor_config[option0] -"
    assert written.packed("aot_autograd", lines)["whole"]


def unpacked(packed: str) -> str:
    return zlib.decompress(base64.b64decode(packed)).decode()


def test_the_size_of_the_keys_that_a_process_reports_is_bounded() -> None:
    written, random_ = WrittenKeys(), random.Random(0)

    def lines(count: int) -> list[str]:
        hashes = ("".join(random_.choices(string.ascii_lowercase, k=51)) for _ in range(count))
        return [f"[{short}] example_inputs[{n}]: 1" for n, short in enumerate(hashes)]

    assert written.packed("inductor_fx", lines(20_000)) == {"parts": 20_000}  # longer than LONGEST
    sizes = [len(written.packed("inductor_fx", lines(4_000)).get("packed", "")) for _ in range(30)]
    assert 0 < max(sizes) <= LONGEST
    assert ROOM - LONGEST < sum(sizes) <= ROOM
    assert sizes[-1] == 0


def test_other_events_are_not_read_as_cache_events() -> None:
    assert cache_and_verdict_of("fx_graph_cache_miss") == ("inductor_fx", "miss")
    assert cache_and_verdict_of("autograd_cache_bypass") == ("aot_autograd", "bypass")
    assert (
        cache_and_verdict_of("automatic_dynamic")
        == cache_and_verdict_of("fx_graph_cache_disabled")
        == ("", "")
    )
