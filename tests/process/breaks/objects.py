"""Breaks at objects, classes, iterators and exceptions."""

import collections
import contextlib
import dataclasses
import enum
import functools
import itertools
import types
import typing

import torch
from torch.utils.flop_counter import FlopCounterMode


class Managed:
    def __enter__(self) -> None: ...

    def __exit__(self, *raised: object) -> None: ...


class Cached:
    @functools.cached_property
    def scale(self) -> float:
        return 2.0


class Looked:
    scale = 2.0

    def __getattribute__(self, name: str) -> object:
        return object.__getattribute__(self, name)


class LookedBySuper:
    scale = 2.0

    def __getattribute__(self, name: str) -> object:
        return super().__getattribute__(name)


class Key:
    def __init__(self, number: int) -> None:
        self.number = number

    def __hash__(self) -> int:
        return hash(self.number)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.number == other.number


class Count(int):
    def __new__(cls, number: int) -> "Count":
        made = super().__new__(cls, number)
        made.number = number
        return made


class Options(typing.TypedDict, total=False):
    scale: int


class CodedError(Exception):
    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


@dataclasses.dataclass
class Batch:
    values: torch.Tensor
    scale: int = 2


class Printing:
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        print("called")
        return x + 1


@contextlib.contextmanager
def printing() -> typing.Iterator[None]:
    print("entered")
    yield


managed, cached, looked, by_super = Managed(), Cached(), Looked(), LookedBySuper()
tensors = {torch.ones(3)}
by_tensor = {torch.ones(3): 1}
queue = collections.deque([1, 2, 3])
ENTER = "Enter the context manager"
LIST = "Pass a list or a tuple"

MOVED = {
    "combinations": (
        "`itertools.combinations_with_replacement`",
        "list(itertools.combinations_with_replacement([1, 2], 2))",
        "x * len(v)",
    ),
    "rotate": ("`deque.rotate`", "queue.rotate(1)"),
    "most_common": ("`object`", "collections.Counter([1, 1]).most_common(1)[0][1]", "x * v"),
    "fields": ("dataclass fields", "dataclasses.fields(Batch)", "x * len(v)"),
    "typed_dict": ("TypedDict", "Options(scale=2)", "x * v['scale']"),
    "subclass_of_int": ("`Unsupported`", "Count(3).number", "x * v"),
    "key_of_an_own_class": ("`KeyError`", "{Key(1): 2.0}[Key(1)]", "x * v"),
    "class_of_an_object": ("__class__", "Cached().__class__ = Looked"),
    "format_of_an_object": ("`TypeError`", "len(f'{managed}')", "x * v"),
}

CURED = {
    "zip": {
        "cause": "iterates over an object `zip`",
        "remedy": LIST,
        "broken": "return x * sum(a * b for a, b in zipped)",
        "cured": "return x * sum(a * b for a, b in v)",
        "outside": "[(1.0, 2.0)]",
        "varies": True,
    },
    "map": {
        "cause": "iterates over an object `map`",
        "remedy": LIST,
        "broken": "return x * sum(mapped)",
        "cured": "return x * sum(v)",
        "outside": "list(map(float, [1, 2]))",
        "varies": True,
    },
    "generator": {
        "cause": "iterates over an object `generator`",
        "remedy": LIST,
        "broken": "return x * sum(generated)",
        "cured": "return x * sum(v)",
        "outside": "list(number for number in (1.0, 2.0))",
        "varies": True,
    },
    "enumerate": {
        "cause": "iterates over an object `enumerate`",
        "remedy": LIST,
        "broken": "for _, scale in enumerated:\n    x = x * scale\nreturn x",
        "cured": "for _, scale in v:\n    x = x * scale\nreturn x",
        "outside": "list(enumerate([2.0]))",
        "varies": True,
    },
    "next_of_an_iterator": {
        "cause": "calls next() on an object `list_iterator`",
        "remedy": "Call next() outside of the compiled function",
        "broken": "return x * next(iterator)",
        "cured": "return x * v",
        "outside": "next(iter([1.0]))",
    },
    "next_of_a_cycle": {
        "cause": "calls next() on an object `cycle`",
        "remedy": "Call next() outside of the compiled function",
        "broken": "return x * next(cycled)",
        "cured": "return x * v",
        "outside": "next(cycled)",
    },
    "groups_by_a_tensor": {
        "cause": "groupby",
        "broken": "v = len(list(itertools.groupby([1, 2], key=lambda n: x[n].sum())))\n"
        "return x * v",
        "cured": "return x * v",
        "outside": "2",
    },
    "loader": {
        "cause": "`DataLoader",
        "broken": "for batch in torch.utils.data.DataLoader([torch.ones(3)]):\n    x = x + batch\n"
        "return x",
        "cured": "for batch in v:\n    x = x + batch\nreturn x",
        "outside": "list(torch.utils.data.DataLoader([torch.ones(3)]))",
    },
    "context_manager": {
        "cause": "context manager `Managed`",
        "remedy": ENTER,
        "broken": "with managed:\n    return x + 1",
        "cured": "return x + 1",
    },
    "cached_property": {
        "cause": "context manager `RLock`",
        "remedy": "read it beforehand",
        "broken": "return x * Cached().scale",
        "cured": "return x * v.scale",
        "outside": "(cached.scale, cached)[1]",
    },
    "flop_counter": {
        "cause": "`FlopCounterMode`",
        "remedy": "around the uncompiled function alone",
        "broken": "with FlopCounterMode(display=False):\n    return x + 1",
        "cured": "return x + 1",
    },
    "context_manager_that_prints": {
        "cause": "`print`",
        "remedy": "Take the printing out",
        "broken": "with printing():\n    return x + 1",
        "cured": "return x + 1",
        "adds": "print",
    },
    "object_that_prints": {
        "cause": "`print`",
        "remedy": "Take the printing out",
        "broken": "return called(x)",
        "cured": "return x + 1",
        "adds": "print",
    },
    "getattribute": {
        "cause": "`__getattribute__`",
        "remedy": "super().__getattribute__(name)",
        "broken": "return x * looked.scale",
        "cured": "return x * by_super.scale",
    },
    "asdict": {
        "cause": "copy.deepcopy",
        "remedy": "dataclasses.asdict() copies, too",
        "broken": "return dataclasses.asdict(Batch(x))['values'] + 1",
        "cured": "return Batch(x.clone()).values + 1",
    },
    "set_of_tensors": {
        "cause": "a set with tensors",
        "remedy": "Use a dictionary where the keys are tensors",
        "broken": "return x * len(tensors)",
        "cured": "return x * len(by_tensor)",
    },
    "own_exception": {
        "cause": "super() attribute",
        "broken": "try:\n    raise CodedError('a', code=3)\nexcept CodedError as error:\n"
        "    return x * error.code",
        "cured": "return x * v",
        "outside": "3",
    },
    "group_of_exceptions": {
        "cause": "bytecode",
        "broken": "try:\n    raise ExceptionGroup('a', [ValueError()])  #!\n"
        "except* ValueError:  #!\n    x = x + 1\nreturn x",
        "cured": "return x + 1",
    },
}
zipped = zip([1.0], [2.0], strict=True)
mapped = map(float, [1, 2])
generated = (number for number in (1.0, 2.0))
enumerated = enumerate([2.0])
iterator = iter([1.0] * 9)
cycled = itertools.cycle([1.0])
called = Printing()
