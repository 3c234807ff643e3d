"""Where a value comes from, and what changes in it: each pair is a small program that recompiles.

``cells`` makes them from two tables. The truth is in the tables: the name of the value that
changes, and its first two values.
"""

from __future__ import annotations

import itertools
import linecache
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

INPUT, MODULE, GLOBAL = "input", "module", "global"  # an integer is dynamic only in the first
_NUMBERS = itertools.count()
_COMMON = """
import collections, enum, functools, types, torch
Pair = collections.namedtuple("Pair", "a v")
class Config:
    def __init__(self, v): self.v = v
class Mode(enum.Enum):
    FAST, SLOW, ODD = 1, 2, 3
class Net(torch.nn.Module):
    def __init__(self, **values):
        super().__init__()
        for name, value in values.items(): setattr(self, name, value)
def double(x): return x * 2
def triple(x): return x * 3
def fourth(x): return x * 4
def marked(t):
    torch._dynamo.maybe_mark_dynamic(t, 0)
    return t
def use(x, v): return USE
x = torch.linspace(-1, 1, 8)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where the value ``V`` comes from.

    Attributes:
        code: defines what is compiled, and names it ``f``. put: what puts the value in its place.
        call: a call of ``f``. name: how the words name the value. place: one of the three above.
        keyed: how a tensor is named, if its key stays readable.
    """

    code: str
    call: str
    name: str
    put: str = ""
    place: str = INPUT
    keyed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """What changes.

    Attributes:
        use: the expression that uses it. values: in turn. category, words, remedy: what must be
        said; the remedies by place, if they differ. cure: what applies the remedy (the name of a
        function of the test); ``None``: there is nothing to apply but to keep it as it is. dynamic,
        fullgraph: as in ``torch.compile``.
    """

    use: str
    values: tuple[str, ...]
    category: str
    words: str
    remedy: str | dict[str, str]
    cure: str | dict[str, str | None] | None
    dynamic: bool | None = None
    fullgraph: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    source: Source
    value: Value
    label: str

    @property
    def remedy(self) -> str:
        remedy = self.value.remedy
        return remedy if isinstance(remedy, str) else remedy[self.source.place]

    @property
    def cure(self) -> str | None:
        cure = self.value.cure
        return cure[self.source.place] if isinstance(cure, dict) else cure

    @property
    def name(self) -> str:
        is_tensor = self.value.values[0].startswith("torch.ones(4")
        return self.source.keyed if is_tensor and self.source.keyed else self.source.name

    def program(self, compiled: Any) -> dict[str, Any]:
        """A namespace with ``f``, and with code objects of its own."""
        module = ModuleType(f"matrix{next(_NUMBERS)}")
        sys.modules[module.__name__] = module  # Dynamo imports it by its name
        names = vars(module)
        names["compiled"] = compiled
        common, file = _COMMON.replace("USE", self.value.use), f"{module.__name__}.py"
        linecache.cache[file] = len(common), None, common.splitlines(keepends=True), file
        exec(compile(common, file, "exec"), names)
        names["V"] = eval(self.value.values[0], names)
        exec(compile(textwrap.dedent(self.source.code), f"{self.label}.py", "exec"), names)
        return names

    def called(self, names: dict[str, Any], value: str) -> Any:
        names["V"] = eval(value, names)
        exec(self.source.put, names)
        return eval(self.source.call, names)


_OF_MODULE = "class Top(Net):\n    def forward(self, x): return {}\n"
_MAKE = """def make(v):
    def g(x): return use(x, v)
    return g
"""
SOURCES: dict[str, Source] = {
    "argument": Source(code="@compiled\ndef f(x, v): return use(x, v)", call="f(x, V)", name="`v`"),
    "keyword": Source(
        code="@compiled\ndef f(x, *, v): return use(x, v)", call="f(x, v=V)", name="`v`"
    ),
    "args": Source(
        code="@compiled\ndef f(x, *rest): return use(x, rest[1])",
        call="f(x, 1, V)",
        name="`rest[1]`",
    ),
    "kwargs": Source(
        code="@compiled\ndef f(x, **options): return use(x, options['v'])",
        call="f(x, v=V)",
        name="`options['...']`",
        keyed="`options['v']`",
    ),
    "list": Source(
        code="@compiled\ndef f(x, items): return use(x, items[1])",
        call="f(x, [0.5, V])",
        name="`items[1]`",
    ),
    "nested": Source(
        code="@compiled\ndef f(x, batch): return use(x, batch['a'][0].v)",
        call="f(x, {'a': [Config(V)]})",
        name="`batch['...'][0].v`",
        keyed="`batch['a'][0].v`",
    ),
    "namedtuple": Source(
        code="@compiled\ndef f(x, pair): return use(x, pair.v)",
        call="f(x, Pair(1, V))",
        name="`pair.v`",
    ),
    "object": Source(
        code="of = Config(V)\n@compiled\ndef f(x, of): return use(x, of.v)",
        put="of.v = V",
        call="f(x, of)",
        name="`of.v`",
    ),
    "partial": Source(
        code="@compiled\ndef f(x, call): return call(x)",
        call="f(x, functools.partial(use, v=V))",
        name="`call.keywords['v']`",
    ),
    "closure": Source(
        code="""
        def make():
            v = None
            def put(new):
                nonlocal v
                v = new
            @compiled
            def f(x): return use(x, v)
            return f, put
        f, put = make()
        """,
        put="put(V)",
        call="f(x)",
        name="`v`",
    ),
    "closure of an argument": Source(
        code=_MAKE + "@compiled\ndef f(x, g): return g(x)",
        call="f(x, make(V))",
        name="`v` in the closure of `g`",
    ),
    "closure of a global function": Source(
        code=_MAKE + "@compiled\ndef f(x): return g(x)",
        put="g = make(V)",
        call="f(x)",
        name="`v` in the closure of `g`",
        place=GLOBAL,
    ),
    "default": Source(
        code="def g(x, v=None): return use(x, v)\n@compiled\ndef f(x): return g(x)",
        put="g.__defaults__ = (V,)",
        call="f(x)",
        name="`g.__defaults__[0]`",
        place=GLOBAL,
    ),
    "global": Source(
        code="@compiled\ndef f(x): return use(x, v)",
        put="v = V",
        call="f(x)",
        name="`v`",
        place=GLOBAL,
    ),
    "module of Python": Source(
        code="settings = types.ModuleType('settings')\n@compiled\n"
        "def f(x): return use(x, settings.v)",
        put="settings.v = V",
        call="f(x)",
        name="`settings.v`",
        place=GLOBAL,
    ),
    "self": Source(
        code=_OF_MODULE.format("use(x, self.v)") + "net = Top(v=V); f = compiled(net)",
        put="net.v = V",
        call="f(x)",
        name="`self.v`",
        place=MODULE,
    ),
    "submodule": Source(
        code=_OF_MODULE.format("use(x, self.sub.v)") + "net = Top(sub=Net(v=V)); f = compiled(net)",
        put="net.sub.v = V",
        call="f(x)",
        name="`self.sub.v`",
        place=MODULE,
    ),
    "list of modules": Source(
        code=_OF_MODULE.format("use(x, self.blocks[1].v)")
        + "net = Top(blocks=torch.nn.ModuleList([Net(), Net(v=V)])); f = compiled(net)",
        put="net.blocks[1].v = V",
        call="f(x)",
        name="`self.blocks.1.v`",
        place=MODULE,
    ),
    "class": Source(
        code=_OF_MODULE.format("use(x, self.v)") + "net = Top(); f = compiled(net)",
        put="Top.v = V",
        call="f(x)",
        name="`self.__class__.v`",
        place=MODULE,
    ),
    "config": Source(
        code=_OF_MODULE.format("use(x, self.cfg.v)")
        + "net = Top(cfg=types.SimpleNamespace(v=V)); f = compiled(net)",
        put="net.cfg.v = V",
        call="f(x)",
        name="`self.cfg.v`",
        place=MODULE,
    ),
    "dict of a module": Source(
        code=_OF_MODULE.format("use(x, self.cfg['v'])")
        + "net = Top(cfg={'v': V}); f = compiled(net)",
        put="net.cfg['v'] = V",
        call="f(x)",
        name="`self.cfg['...']`",
        keyed="`self.cfg['v']`",
        place=MODULE,
    ),
}
_INTEGERS = ("2", "3", "4", "5")
_OF_INTEGER: dict[str, str] = {
    INPUT: "two values of it during the warm-up",
    MODULE: "allow_unspec_int_on_nn_module",
    GLOBAL: "pass it as an argument",
}
_CURE_OF_INTEGER: dict[str, str | None] = {
    INPUT: "two_in_the_warm_up",
    MODULE: "with_the_setting",
    GLOBAL: "as_an_argument",
}
_EACH, _FUNCTIONS = "each_in_the_warm_up", "one_function_for_each"
VALUES: dict[str, Value] = {
    "integer": Value(
        use="x * v",
        values=_INTEGERS,
        category="python_value",
        words="went from 2 to 3",
        remedy=_OF_INTEGER,
        cure=_CURE_OF_INTEGER,
    ),
    "range": Value(
        use="sum(x + i for i in range(v))",
        values=_INTEGERS,
        category="python_value",
        words="went from 2 to 3",
        remedy="range() makes a constant of this integer: call the function with each value",
        cure=_EACH,
    ),
    "branch": Value(
        use="x + 1 if v > 3 else x - 1",
        values=("2", "3", "4"),
        category="python_value",
        words="",
        remedy={**_OF_INTEGER, INPUT: "once on each side of it"},
        cure=_EACH,
    ),
    "alternating bool": Value(
        use="x + 1 if v else x - 1",
        values=("True", "False", "True", "False"),
        category="python_value",
        words="went from True to False",
        remedy="one function for each of few values",
        cure=_FUNCTIONS,
    ),
    "fullgraph branch": Value(
        use="x + 1 if v > 3 else x - 1",
        values=("2", "3", "4"),
        category="python_value",
        words="",
        remedy={**_OF_INTEGER, INPUT: "once on each side of it"},
        cure=_EACH,
        fullgraph=True,
    ),
    "fullgraph batch": Value(
        use="v * 2 + 1",
        values=tuple(f"torch.ones({size}, 6)" for size in (4, 5, 7)),
        category="shape",
        words="dim 0 went from 4 to 5",
        remedy="maybe_mark_dynamic",
        cure="with_a_mark",
        fullgraph=True,
    ),
    "float": Value(
        use="x * v",
        values=("0.5", "0.25", "0.125"),
        category="python_value",
        words="went from 0.5 to 0.25",
        remedy="a tensor if the code only computes with it",
        cure="as_a_tensor",
    ),
    "bool": Value(
        use="x + 1 if v else x - 1",
        values=("True", "False"),
        category="python_value",
        words="went from True to False",
        remedy="one function for each of few values",
        cure=_FUNCTIONS,
    ),
    "text": Value(
        use="x + 1 if v == 'a' else x - 1",
        values=("'a'", "'b'", "'c'"),
        category="python_value",
        words="changed",
        remedy="one function for each of few values",
        cure=_FUNCTIONS,
    ),
    "None": Value(
        use="x * 2 if v is None else x + v",
        values=("None", "torch.ones(8)", "None"),
        category="python_value",
        words="was None and is not None now",
        remedy="or call the function once ",
        cure=_EACH,
    ),
    "items": Value(
        use="x + torch.stack(v).sum(0)",
        values=tuple(f"[torch.ones(8)] * {count}" for count in (1, 2, 3)),
        category="python_value",
        words="went from 1 to 2",
        remedy="Keep the number of items",
        cure=None,
    ),
    "function": Value(
        use="v(x)",
        values=("double", "triple", "fourth"),
        category="object_identity",
        words="is another function",
        remedy="one compiled function for each",
        cure=_FUNCTIONS,
    ),
    "member of an enum": Value(
        use="x * 2 if v is Mode.FAST else x * 3",
        values=("Mode.FAST", "Mode.SLOW", "Mode.ODD"),
        category="object_identity",
        words="is no longer the same `Mode`",
        remedy="each of them once during the warm-up",
        cure=_EACH,
    ),
    "batch": Value(
        use="v * 2 + 1",
        values=tuple(f"torch.ones({size}, 6)" for size in (4, 5, 7)),
        category="shape",
        words="dim 0 went from 4 to 5",
        remedy="maybe_mark_dynamic",
        cure="with_a_mark",
    ),
    "dtype": Value(
        use="v * 2",
        values=("torch.ones(4)", "torch.ones(4).double()", "torch.ones(4).long()"),
        category="dtype",
        words="dtype went from Float to Double",
        remedy="Cast the tensor to one dtype",
        cure="cast",
    ),
    "static integer": Value(
        use="x * v",
        values=_INTEGERS,
        category="python_value",
        words="went from 2 to 3",
        remedy={
            INPUT: "Leave dynamic=False",
            MODULE: "Leave dynamic=False out. Set",
            GLOBAL: "Leave dynamic=False out. PyTorch makes a constant",
        },
        cure={
            INPUT: "without_static_shapes",
            MODULE: "with_the_setting",
            GLOBAL: "as_an_argument",
        },
        dynamic=False,
    ),
    "static batch": Value(
        use="v * 2 + 1",
        values=tuple(f"torch.ones({size}, 6)" for size in (4, 5, 7)),
        category="shape",
        words="dim 0 went from 4 to 5",
        remedy="Leave dynamic=False",
        cure="without_static_shapes",
        dynamic=False,
    ),
    "dynamic range": Value(
        use="sum(x + i for i in range(v))",
        values=_INTEGERS,
        category="python_value",
        words="went from 2 to 3",
        remedy="range() makes a constant of this integer: call the function with each value",
        cure=_EACH,
        dynamic=True,
    ),
    "equal sizes": Value(
        use="v * 2 + 1",
        values=tuple(f"torch.ones({size}, 6)" for size in (6, 5, 7)),
        category="shape",
        words="are no longer equal",
        remedy="once with sizes that differ",
        cure="sizes_that_differ_first",
        dynamic=True,
    ),
    "layout": Value(
        use="v * 2",
        values=("torch.ones(4, 6)", "torch.ones(6, 4).t()"),
        category="shape",
        words="stride of dim 0 went from 6 to 1",
        remedy=".contiguous()",
        cure="contiguous",
    ),
    "kind": Value(
        use="v * 2",
        values=("torch.ones(4) + 0j", "(torch.ones(4) + 0j).conj()"),
        category="object_identity",
        words="is of another kind (now Conjugate)",
        remedy="resolve_conj()",
        cure="resolved",
    ),
}
# In each place; the other values only where an integer is treated in another way.
_EVERYWHERE = ("integer", "None", "items", "batch")


def cells() -> Iterator[Cell]:
    for of, source in SOURCES.items():
        for what, value in VALUES.items():
            if what in _EVERYWHERE or of in ("argument", "object", "global", "submodule"):
                yield Cell(source, value, f"{what}, {of}")
