"""What was requested of the compiler and did not happen: sentence, /status, series, exit code."""

from __future__ import annotations

import pytest

from support import builders as b
from support.documents import status
from support.values import replace
from warmwatch.shared.record import DISABLED, CompileCounts
from warmwatch_monitor.commands.status import exit_code
from warmwatch_monitor.metrics import render
from warmwatch_monitor.model.journal import Compilation, CudagraphSkip
from warmwatch_monitor.model.snapshot import RankView
from warmwatch_monitor.status.words.conditions import conditions
from warmwatch_monitor.status.words.requested import plain_skip, turned_off
from warmwatch_monitor.status.words.sentence import answer as headline_of

IN_VAIN = replace(b.EAGER.compile, wrappers=2, requested_at=1)
EXPECTED = (
    "gpt2: eager, but torch.compile was called 2 times and nothing has compiled in 120 "
    "steps; most likely the object that was passed to torch.compile is called, and not the one "
    "that it returned; Call the object that torch.compile returns, as in model = "
    "torch.compile(model): only its forward is compiled. "
    "Otherwise it is for evaluation only, a DataLoader's worker calls it, a stance is "
    "around its calls, or it is a generator: compile the function that calls that."
)


def eager(counts: CompileCounts, **more: object) -> RankView:
    return b.view(replace(b.EAGER, compile=counts), **more)  # type: ignore[arg-type]


def test_requested_but_never_compiled_needs_attention() -> None:
    snapshot = b.snapshot(eager(IN_VAIN))
    answer = status(snapshot)
    assert b.in_words(eager(IN_VAIN)) == EXPECTED
    (rank,) = answer["runs"][0]["ranks"]
    assert (rank["state"], rank["compile"]["wrappers"]) == ("eager", 2)
    assert [one["condition"] for one in rank["conditions"]] == ["never_compiled"]
    assert exit_code(answer) == 4


def test_of_a_module_compiled_in_place_neither_forward_nor_a_container_compiles() -> None:
    """Only ``Module.compile()`` puts ``forward`` among the methods that run uncompiled."""
    text = b.in_words(eager(IN_VAIN, journal={"methods": ("log_prob", "forward")}))
    assert "(`log_prob`, `forward`), or it is a module of PyTorch itself (Sequential" in text
    assert "call model(...) and not model.forward(...)" in text
    assert "model.log_prob = torch.compile(model.log_prob)" in text
    assert "container" not in b.in_words(eager(IN_VAIN, journal={"methods": ("log_prob",)}))


def test_a_function_that_no_step_calls_is_reported_and_needs_no_attention() -> None:
    view = eager(replace(IN_VAIN, requested_at=0))
    words = "torch.compile was called 2 times: nothing that it returned has compiled here"
    assert b.in_words(view).endswith(words)
    assert exit_code(status(b.snapshot(view))) == 0


@pytest.mark.parametrize(
    ("code", "name", "words"),
    [
        (1, "environment", "TORCHDYNAMO_DISABLE"),
        (2, "stance", 'torch.compiler.set_stance("force_eager")'),
        (3, "config", "torch._dynamo.config.disable (or TORCH_COMPILE_DISABLE)"),
    ],
)
def test_disabled_compilation_is_reported_and_is_not_a_problem(
    code: int, name: str, words: str
) -> None:
    snapshot = b.snapshot(eager(replace(IN_VAIN, disabled=code)))
    text = f"gpt2: runs eagerly: compilation is turned off by {words}"
    head = headline_of(snapshot)
    assert head.summary.startswith(text)
    assert "48 ms a step" in b.in_words(*snapshot.runs[0].ranks)
    answer = status(snapshot)
    (rank,) = answer["runs"][0]["ranks"]
    assert (rank["compile"]["disabled"], rank["conditions"]) == (name, [])
    assert exit_code(answer) == 0
    body = render(snapshot, None)[0].decode()
    assert f'warmwatch_compile_disabled{{by="{name}",rank="0",run="gpt2"}} 1.0' in body


def test_skipped_cuda_graphs_are_reported_with_the_reason_and_need_no_attention() -> None:
    left_out = Compilation(
        id="0/0",
        kind="forward",
        at_ns=b.ago(9),
        cudagraph_skip="skipping cudagraphs due to mutated inputs (2 instances). Found from :",
    )
    counts = replace(b.WARM.compile, cudagraph_skips=2, memory_ns=b.NOW)
    view = b.view(replace(b.WARM, compile=counts), compilations=(left_out,))
    snapshot = b.snapshot(view)
    words = (
        "CUDA graphs were requested and left out 2 times: a compiled function changes its inputs "
        "in place"
    )
    assert f"; {words}; Keep what it changes in a buffer" in b.in_words(view)
    answer = status(snapshot)
    (rank,) = answer["runs"][0]["ranks"]
    (held,) = rank["conditions"]
    assert (held["condition"], held["words"]) == ("cudagraph_skipped", words)
    assert "mark_static_address" in held["advice"]
    assert rank["compile"]["cudagraph_skips"] == 2
    assert rank["compile"]["last"][0]["cudagraph_skip"] == left_out.cudagraph_skip
    assert exit_code(answer) == 0


def test_the_latest_reason_is_reported_with_or_without_a_compilation() -> None:
    compiled = Compilation(
        id="0/0", kind="forward", at_ns=b.ago(9), cudagraph_skip="skipping cudagraphs due to new"
    )
    ran = CudagraphSkip(
        at_ns=b.ago(8),
        reason="skipping cudagraphs due to mutated inputs (1 instances). Found from :",
        name="forward",
        file="train.py",
        line=12,
    )
    skips = replace(b.WARM, compile=replace(b.WARM.compile, cudagraph_skips=2, memory_ns=b.NOW))

    def text(*made: Compilation, ran: CudagraphSkip) -> str:
        return b.in_words(b.view(skips, compilations=made, journal={"skips": (ran,)}))

    begins = "; CUDA graphs were requested and left out 2 times: "
    in_place = "a compiled function changes its inputs in place, at `forward` (train.py:12)"
    assert begins + in_place in text(compiled, ran=ran)
    later = replace(compiled, at_ns=b.ago(7))
    assert text(later, ran=ran).endswith("skipping cudagraphs due to new")
    assert "in place; Keep" in text(ran=replace(ran, name=None, file=None, line=None))


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("skipping cudagraphs due to cpu device (primals_1). Found from :", "on the CPU"),
        ("skipping cudagraphs due to multiple devices: device('cpu'), ...", "several devices"),
        ("graph with symbolic shapes inputs and config.triton.cudag...", "shapes are dynamic"),
        (
            "disabling cudagraphs due to incompatible op aten._foo.default",
            "aten._foo.default cannot be recorded",
        ),
        (
            "skipping cudagraph due to function 3 exceeding max re-recording limit (=128)",
            "recorded again too often",
        ),
        ("skipping cudagraphs due to something new", None),
    ],
)
def test_known_reasons_of_pytorch_are_translated(reason: str, words: str | None) -> None:
    text = plain_skip(reason)
    assert text is None if words is None else words in str(text)


def test_calls_that_a_stance_leaves_uncompiled_are_reported_with_their_step() -> None:
    counts = replace(
        b.WARM.compile,
        eager_calls=14,
        eager_calls_since=12,
        refused_calls=1,
        refused_calls_since=20,
        on_recompile_calls=2,
        on_recompile_calls_since=30,
        uncompiled_step=b.WARM.steps.steps,
    )
    (clause,) = conditions(b.view(replace(b.WARM, compile=counts))).values()
    assert clause.text == (
        '14 calls ran eagerly, the first in step 12: torch.compiler.set_stance("force_eager"); '
        '1 call failed, the first in step 20: torch.compiler.set_stance("fail_on_recompile"); '
        "2 calls ran under a stance in which new inputs run eagerly, the first in step 30: "
        'torch.compiler.set_stance("eager_on_recompile")'
    )
    earlier = replace(counts, uncompiled_step=b.WARM.steps.steps - 10)
    assert conditions(b.view(replace(b.WARM, compile=earlier))) == {}


def test_a_stance_for_new_inputs_is_not_reported_as_disabled_compilation() -> None:
    by = DISABLED.index("eager_on_recompile")
    counts = replace(b.WARM.compile, disabled=by, disabled_since_steps=40)
    assert turned_off(b.view(replace(b.WARM, compile=counts)).figures) == (
        'new inputs run eagerly since step 41: torch.compiler.set_stance("eager_on_recompile")'
    )
