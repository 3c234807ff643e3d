"""The pytest plugin in a real pytest; its counts are compared with PyTorch's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.torch_versions import TORCH
from support.trainings import Training, environment, started
from warmwatch.shared.advice import ADVICE
from warmwatch.shared.breaks import plain_break
from warmwatch.shared.reasons import plain

pytest_plugins = ["pytester"]
PytestOf = Callable[..., pytest.RunResult]
PLUGIN = ("-p", "warmwatch.pytest_plugin", "--strict-markers")

# Each test's own truth: what a backend is called for is a graph, and Dynamo's own accounts.
HEAD = """
import pytest
import torch
from torch._dynamo.testing import CompileCounter
from torch._dynamo.utils import counters

torch.set_num_threads(1)


def made(function):
    count = CompileCounter()
    return torch.compile(function, backend=count), count


def double(x):
    return x * 2


def broken(x):
    y = x.sin()
    print("break")
    return y.cos()


def branched(x):
    y = x.sin()
    if y.sum() > 0:
        y = y + 1
    return y.cos()


def recompiled(f, *sizes):
    for size in sizes:
        f(torch.ones(size))
"""


@pytest.fixture
def pytest_of(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> PytestOf:
    """Runs tests that begin with HEAD, with the plugin and no other that is installed."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("WARMWATCH_DIR", raising=False)

    def run(body: str, *options: str, head: str = HEAD) -> pytest.RunResult:
        pytester.makepyfile(test_it=head + body)
        return pytester.runpytest_subprocess(*PLUGIN, *options)

    return run


@pytest.fixture
def forked_pytest_of(pytester: pytest.Pytester) -> PytestOf:
    """The same in a process that is forked from one that has imported PyTorch."""

    def run(body: str, *options: str) -> pytest.RunResult:
        pytester.makepyfile(test_it=HEAD + body)
        script, errors = pytester.path / "run.py", pytester.path / "errors"
        script.write_text(f"import sys, pytest\nsys.exit(pytest.main({[*PLUGIN, *options]}))\n")
        env = environment(pytester.path / "records", PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
        inner = Training(started(script, pytester.path, env, errors), errors)
        with inner.process:
            code = inner.wait()
        lines = "".join(inner.output).splitlines()
        return pytest.RunResult(code, lines, inner.stderr.splitlines(), 0)

    return run


COUNTS = """
def test_blocks_count_what_pytorch_counts(warmwatch_compiles):
    for function, sizes in ((double, (3,)), (double, (3, 4, 5)), (broken, (3,)), (branched, (3,))):
        torch._dynamo.reset()
        counters.clear()
        compiled, count = made(function)
        with warmwatch_compiles() as compiles:
            recompiled(compiled, *sizes)
        assert compiles.graphs == count.frame_count == counters["stats"]["unique_graphs"]
        assert compiles.recompiles == (len(sizes) > 1)
        frames = torch._dynamo.explain(function)(torch.ones(3))
        assert compiles.breaks == frames.graph_break_count
        assert compiles.breaks >= sum(counters["graph_break"].values()) / 2


def test_a_break_that_leaves_the_rest_of_a_function_to_python_counts_once(warmwatch_compiles):
    class Recurrent(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = torch.nn.LSTM(1, 1)

        def forward(self, x):
            x = x.sin() + 1
            x, _ = self.lstm(x)
            return x.cos()

    torch._dynamo.reset()
    compiled, _ = made(Recurrent())
    with warmwatch_compiles(graphs=1, breaks=1):
        compiled(torch.ones(3, 1, 1))


def test_compilations_are_counted_although_the_test_clears_the_counters(warmwatch_compiles):
    with warmwatch_compiles(graphs=3, recompiles=0, breaks=0) as compiles:
        for _ in range(3):
            torch._dynamo.reset()
            counters.clear()
            made(double)[0](torch.ones(3))
        assert compiles.graphs == 3


def test_blocks_in_blocks_and_a_block_that_compiles_nothing(warmwatch_compiles):
    torch._dynamo.reset()
    compiled, _ = made(double)
    with warmwatch_compiles(graphs=2, recompiles=1) as outer:
        with warmwatch_compiles(graphs=1):
            compiled(torch.ones(3))
        with warmwatch_compiles(graphs=0):
            compiled(torch.ones(3))
        with warmwatch_compiles(graphs=(1, 2), recompiles=1):
            compiled(torch.ones(4))
        assert (outer.graphs, outer.recompiles) == (2, 1)
    compiled(torch.ones(2, 2))
    assert outer.graphs == 2


def test_a_function_that_hits_the_recompile_limit(warmwatch_compiles):
    torch._dynamo.reset()
    with torch._dynamo.config.patch(LIMIT=2, automatic_dynamic_shapes=False):
        # the attempt that hits it compiles nothing
        with warmwatch_compiles(graphs=2, recompiles=1, fallbacks=1, failures=0):
            recompiled(made(double)[0], 2, 3, 4, 5)
        # PyTorch raises at each call that fits no entry
        torch._dynamo.reset()
        with warmwatch_compiles(graphs=2, recompiles=1, fallbacks=1):
            whole = torch.compile(double, backend="eager", fullgraph=True)
            recompiled(whole, 2, 3)
            for _ in range(2):
                with pytest.raises(Exception, match="fullgraph=True"):
                    whole(torch.ones(4))


def test_uncompiled_flex_attention_runs_eagerly_as_in_status(warmwatch_compiles):
    from torch.nn.attention.flex_attention import flex_attention

    from warmwatch.shared.fallbacks import FLEX, REMEDIES
    from warmwatch.testing.compile_counter import _cause

    torch._dynamo.reset()
    q = torch.ones(1, 1, 16, 16)
    with warmwatch_compiles(fallbacks=1) as compiles:
        flex_attention(q, q, q)
    ((words, remedy),) = (_cause("fallbacks", one) for one in compiles._compiled.seen["fallbacks"])
    assert words.startswith("`flex_attention` runs unfused in `test_uncompiled_flex_attention_runs")
    assert remedy == REMEDIES[FLEX]


def test_functions_of_one_name_are_told_apart_after_a_reset(warmwatch_compiles):
    from warmwatch.testing.compile_counter import counter

    with warmwatch_compiles(fallbacks=2):
        for line in (5, 5, 9):
            of = {"id": "0/8", "name": "forward", "file": "model.py", "line": line}
            counter().post("fallback", {"setting": "recompile_limit", "limit": 8, **of})


def test_another_module_of_the_same_class_is_a_recompile_as_in_status(warmwatch_compiles):
    torch._dynamo.reset()
    with warmwatch_compiles(graphs=2, recompiles=1, failures=0):
        for size in (2, 5):
            torch.compile(torch.nn.Linear(size, 2), backend="eager")(torch.ones(3, size))


def test_each_attempt_under_fullgraph_that_raises_is_a_failure(warmwatch_compiles):
    torch._dynamo.reset()
    compiled = torch.compile(broken, backend="eager", fullgraph=True)
    with warmwatch_compiles(graphs=0, recompiles=0, failures=3, fallbacks=0) as compiles:
        for _ in range(3):
            with pytest.raises(torch._dynamo.exc.Unsupported):
                compiled(torch.ones(3))
        assert compiles.failures == 3


def test_a_backend_that_raises_is_a_failure(warmwatch_compiles):
    def refuses(graph, inputs):
        raise ValueError("no code")

    torch._dynamo.reset()
    with warmwatch_compiles(recompiles=0, failures=1), pytest.raises(Exception, match="no code"):
        torch.compile(double, backend=refuses)(torch.ones(3))


def test_the_backward_is_no_graph_of_dynamos(warmwatch_compiles):
    torch._dynamo.reset()
    f = torch.compile(lambda x: (x * 2).sum(), backend="aot_eager")
    with warmwatch_compiles(graphs=1, recompiles=0, breaks=0):
        f(torch.ones(3, requires_grad=True)).backward()


def test_hooks_are_installed_while_a_counter_exists(warmwatch_compiles):
    from torch._dynamo import convert_frame, utils
    from warmwatch.hooks.dynamo.compilations import NAMES
    from warmwatch.hooks.points import first_of

    def hook_points():
        logger = utils.ChromiumEventLogger
        logs = getattr(utils, first_of(utils, NAMES))
        return logs, logger.log_event_start, convert_frame.log.filters[:]

    before = hook_points()
    with warmwatch_compiles(graphs=0):
        assert hook_points()[0] is not before[0]
    assert hook_points() == before


def test_no_agent_is_attached(warmwatch_compiles):
    import sys
    import warmwatch

    assert warmwatch.state() is None
    assert "warmwatch.lifecycle.agent" not in sys.modules
"""


@pytest.mark.slow
def test_the_plugin_counts_as_pytorch_does(forked_pytest_of: PytestOf) -> None:
    forked_pytest_of(COUNTS.replace("LIMIT", TORCH.limit)).assert_outcomes(passed=13)


FAILS = """
import unittest


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


@pytest.mark.warmwatch_compiles(graphs=1, breaks=0, recompiles=0)
def test_recompiles():
    recompiled(made(double)[0], 3, 4)


@pytest.mark.warmwatch_compiles(recompiles=0)
def test_last_batch():
    compiled, _ = made(double)
    for batch in torch.utils.data.DataLoader(range(10), batch_size=4):
        compiled(batch)


@pytest.mark.warmwatch_compiles(graphs=1, breaks=0)
def test_breaks():
    made(broken)[0](torch.ones(3))


@pytest.mark.warmwatch_compiles(breaks=0)
def test_branches():
    made(branched)[0](torch.ones(3))


@pytest.mark.warmwatch_compiles(graphs=1, breaks=0, recompiles=0)
def test_good():
    recompiled(made(double)[0], 3, 3)


@pytest.mark.warmwatch_compiles(recompiles=0)
def test_raises_by_itself():
    recompiled(made(double)[0], 3, 4)
    raise ValueError("its own")


def test_block_raises_by_itself(warmwatch_compiles):
    with warmwatch_compiles(graphs=7):
        raise ValueError("of the block")


def test_block(warmwatch_compiles):
    with warmwatch_compiles(graphs=7):
        made(double)[0](torch.ones(3))


class TestOfUnittest(unittest.TestCase):
    @pytest.mark.warmwatch_compiles(recompiles=0)
    def test_case(self):
        recompiled(made(double)[0], 3, 4)

    @pytest.mark.warmwatch_compiles(recompiles=0)
    def test_case_raises(self):
        recompiled(made(double)[0], 3, 4)
        self.fail("its own failure")

    @pytest.mark.warmwatch_compiles(recompiles=0)
    def test_case_is_skipped(self):
        self.skipTest("for a reason")


@pytest.mark.warmwatch_compiles(recompiles=0)
def test_nothing_compiles_since_it_is_turned_off():
    with torch._dynamo.config.patch(disable=True):
        pass
    torch._dynamo.config.disable = True


def test_on_again():
    torch._dynamo.config.disable = False


@pytest.mark.warmwatch_compiles(graph=1)
def test_wrong_name():
    pass


@pytest.mark.warmwatch_compiles(1)
def test_wrong_use():
    pass
"""


AGAIN = plain("0/0: tensor 'x' size mismatch at index 0. expected 3, actual 4", "shape")


@pytest.mark.slow
def test_a_failure_has_reason_and_remedy_after_the_tests_own_error(
    forked_pytest_of: PytestOf,
) -> None:
    done = forked_pytest_of(FAILS)
    done.assert_outcomes(passed=2, failed=12, skipped=1)
    text = done.stdout.str()
    for output in (
        "test_recompiles compiled otherwise than expected:",
        "  2 graphs, expected 1",
        "  1 recompile, expected 0",
        f"    `double` (test_it.py:14): {AGAIN}",
        f"      {ADVICE['shape']}",
        "      The last batch of an epoch had 2 of 4: pass drop_last=True to the DataLoader",
        "  1 graph break, expected 0",
        "    `broken` (test_it.py:20): ",
        "      Take the printing out of the compiled function, or if it prints texts and",
        f"    `branched` (test_it.py:26): {plain_break('generic_jump')}",
        "ValueError: its own",
        "ValueError: of the block",
        "  1 graph, expected 7",
        "AssertionError: its own failure",
        "nothing could compile: compilation is disabled by torch._dynamo.config.disable",
        "warmwatch_compiles counts graphs, breaks, recompiles, fallbacks, failures, not 'graph'",
        "use @pytest.mark.warmwatch_compiles(graphs=1, breaks=0, recompiles=0)",
    ):
        assert output in text, output
    assert "test_raises_by_itself compiled" not in text
    assert "test_case_raises compiled" not in text


WITHOUT = """
import sys
import pytest


def test_unused():
    assert not [name for name in sys.modules if name.split(".")[0] == "torch"]
    ours = {name for name in sys.modules if name.startswith("warmwatch")}
    needed = ("lifecycle", "lifecycle.api", "lifecycle.allowing", "_version", "pytest_plugin")
    assert ours == {"warmwatch", *(f"warmwatch.{name}" for name in needed)}


@pytest.mark.warmwatch_compiles(graphs=0)
def test_used_without_torch():
    assert not [name for name in sys.modules if name.split(".")[0] == "torch"]


@pytest.mark.warmwatch_compiles(recompiles=0)
def test_in_vain():
    pass
"""


@pytest.mark.parametrize("options", [(), ("-p", "xdist", "-n", "1")], ids=["here", "a worker"])
def test_an_unused_plugin_loads_no_module_and_a_used_one_does_not_import_torch(
    pytest_of: PytestOf, options: tuple[str, ...]
) -> None:
    done = pytest_of(WITHOUT, *options, head="")
    done.assert_outcomes(passed=2, failed=1)
    assert "nothing could compile: torch._dynamo was not imported" in done.stdout.str()


# What may stand around a test, and what a test may do itself.
AROUND = """
import os
import signal
import threading

many = pytest.mark.warmwatch_compiles


def halve(x):
    return x / 2


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


@many(graphs=1, recompiles=0)
class TestOfOneGraph:
    def test_as_the_class_says(self):
        made(double)[0](torch.ones(3))

    @many(breaks=0)
    def test_the_classs_number_holds_too(self):
        recompiled(made(double)[0], 3, 4)

    @many(graphs=2)
    def test_its_own_goes_first(self):
        made(double)[0](torch.ones(3))
        made(halve)[0](torch.ones(3))

    @many(graphs=None, recompiles=None)
    def test_it_frees_what_the_class_holds(self):
        recompiled(made(double)[0], 3, 4)

    @pytest.mark.parametrize(
        "sizes", [(3,), pytest.param((3, 4), marks=many(graphs=2, recompiles=1))]
    )
    def test_a_parameter_has_its_own(self, sizes):
        recompiled(made(double)[0], *sizes)

    @many(grahps=2)
    def test_a_slip_of_the_pen(self):
        pass


@pytest.fixture
def broken_fixture():
    made(double)[0](torch.ones(3))
    raise RuntimeError("of the fixture")


@many(graphs=0)
def test_whose_fixture_fails(broken_fixture):
    pass


@pytest.mark.skip
@many(graphs=1)
def test_skipped():
    pass


@pytest.mark.xfail
@many(graphs=2)
def test_expected_to_compile_otherwise():
    made(double)[0](torch.ones(3))


@many(graphs=1)
def test_on_a_thread_of_its_own():
    thread = threading.Thread(target=made(double)[0], args=[torch.ones(3)])
    thread.start()
    thread.join()


@many(graphs=1)
def test_what_a_forked_child_compiles_is_the_childs(warmwatch_compiles):
    held, over = threading.Event(), threading.Event()

    def holds():
        from warmwatch.testing import compile_counter

        with compile_counter.counter()._lock:
            held.set()
            over.wait()

    made(double)[0](torch.ones(3))
    thread = threading.Thread(target=holds)
    thread.start()
    held.wait()
    if not (child := os.fork()):
        signal.alarm(200)  # one that waits for the lock does so for ever
        with warmwatch_compiles(graphs=1, recompiles=0):
            made(halve)[0](torch.ones(3))
        os._exit(0)
    over.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


@many(graphs=2)
def test_that_attaches_and_detaches(tmp_path, monkeypatch):
    import warmwatch

    monkeypatch.setenv("WARMWATCH_DIR", str(tmp_path))
    made(double)[0](torch.ones(3))
    warmwatch.attach()
    assert warmwatch.state() == "starting"
    made(halve)[0](torch.ones(3))
    assert warmwatch.state() == "warming"
    warmwatch.detach()


@many(graphs=1)
def test_after_it():
    made(double)[0](torch.ones(3))
"""


@pytest.mark.slow
def test_code_around_a_test_changes_no_count(
    forked_pytest_of: PytestOf,
) -> None:
    done = forked_pytest_of(AROUND, "-rA")
    done.assert_outcomes(passed=9, failed=2, errors=1, skipped=1, xfailed=1)
    text = done.stdout.str()
    assert "test_the_classs_number_holds_too compiled otherwise than expected" in text
    assert "counts graphs, breaks, recompiles, fallbacks, failures, not 'grahps'" in text
    assert "RuntimeError: of the fixture" in text
