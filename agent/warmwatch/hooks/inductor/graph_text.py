"""Operations of a graph from its printed text, which AOTAutograd's cache stores beside the code.

With a hit in that cache no graph exists in this process. An entry has the text of its forward and
its backward graph (torch 2.6 to 2.15), as ``print_readable`` writes it: one line for each node,
with the shape of each tensor. ``wrap_post_compile`` of an entry loads the code of both.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

_MODULES = ("aot_autograd_result", "autograd_cache")  # of 2.9 and later, and before
_ENTRIES = ("GenericAOTAutogradResult", "AOTAutogradResult", "AOTAutogradCacheEntry")
LOADS = "wrap_post_compile"
_LONGEST = 2**24  # characters
_TEXTS = (("compiled_fw", "aot_forward_graph_str"), ("compiled_bw", "aot_backward_graph_str"))

_SHAPE = re.compile(r'\b(\w+): "(\w+)\[([^\]]*)\]')
_NAME = re.compile(r"\b\w+\b")
_ITEM = re.compile(r'^ +(\w+)(?:: "[^"]*")? = (\w+)\[(\d+)\]', re.MULTILINE)
_CALL = re.compile(
    r'^ +(\w+)(?:: "[^"]*")? = torch\.ops\.(\w+)\.(\w+)(?:\.(\w+))?\((.*?)\)(?:;  .*)?$',
    re.MULTILINE,
)
_COMMENT = re.compile(r"^ +#.*$", re.MULTILINE)  # quotes lines of the user's code
_SUBGRAPH = re.compile(r"^ +class ", re.MULTILINE)


class UnknownSizeError(Exception):
    """A size is a symbol in the text: its value is not in the cache."""


class Call(NamedTuple):
    """A call of an operation. ``shapes`` returns args, kwargs and result; tensors as shapes.

    ``types`` returns the dtypes of the tensors that it gets.
    """

    target: Any
    shapes: Callable[[], tuple[Any, Any, Any]]
    types: Callable[[], Sequence[str]]


def entry_class() -> Any:
    """The class of a cache entry; ``None`` if this PyTorch has none."""
    for module in _MODULES:
        result = sys.modules.get(f"torch._functorch._aot_autograd.{module}")
        for name in _ENTRIES:
            if LOADS in vars(entry := getattr(result, name, object)):
                return entry
    return None


def notice(entry: Any, loaded: list[tuple[Any, str]]) -> Callable[[], None]:
    """Append code and text of each graph that ``entry`` loads to ``loaded``; the result ends that.

    PyTorch completes the code after it has loaded it.
    """
    outputs = [
        (output, output.load, text)
        for name, of_text in _TEXTS
        if (output := getattr(entry, name)) is not None
        and (text := getattr(entry, of_text)) is not None
    ]
    for output, load, text in outputs:
        output.load = _noticing(load, text, loaded)

    def end() -> None:
        for output, *_ in outputs:
            del output.load

    return end


def _noticing(
    load: Callable[..., Any], text: str, loaded: list[tuple[Any, str]]
) -> Callable[..., Any]:
    def noticed(*args: Any, **kwargs: Any) -> Any:
        code = load(*args, **kwargs)
        loaded.append((code, text))
        return code

    return noticed


def calls(text: str) -> Iterator[Call]:
    """The calls of operations in the text of a graph, without those in its subgraphs.

    Raises:
        UnknownSizeError: the text is too long; or ``shapes`` meets a size that is a symbol.
    """
    if len(text) > _LONGEST:
        raise UnknownSizeError
    if subgraph := _SUBGRAPH.search(text):
        text = text[: subgraph.start()]
    text = _COMMENT.sub("", text)
    values = _SHAPE.findall(text)
    shapes: dict[str, Any] = {name: _dims(dims) for name, _, dims in values}
    types = {name: dtype for name, dtype, _ in values}
    for name, of, place in _ITEM.findall(text):
        shapes.setdefault(of, {})[int(place)] = shapes.get(name)
    for result, namespace, name, overload, args in _CALL.findall(text):
        of_call = functools.partial(_types, args, types)
        yield Call(_target(namespace, name, overload), _reader(result, args, shapes), of_call)


def _types(args: str, types: Mapping[str, str]) -> list[str]:
    return [types[name] for name in _NAME.findall(args) if name in types]


def _dims(text: str) -> tuple[int, ...] | None:
    """A shape; ``None`` if a size in it is a symbol."""
    dims = text.split(", ") if text else []
    return tuple(map(int, dims)) if all(map(str.isdecimal, dims)) else None


def _target(namespace: str, name: str, overload: str) -> Any:
    """The operation; its name if this process has not registered it."""
    try:
        packet = getattr(getattr(sys.modules["torch"].ops, namespace), name)
        return getattr(packet, overload) if overload else packet
    except AttributeError:
        return f"{namespace}::{name}"


def _reader(
    result: str, args: str, shapes: Mapping[str, Any]
) -> Callable[[], tuple[Any, Any, Any]]:
    def read() -> tuple[Any, Any, Any]:
        call: Any = ast.parse(f"f({args})", mode="eval").body
        kwargs = {keyword.arg: _value(keyword.value, shapes) for keyword in call.keywords}
        return [_value(value, shapes) for value in call.args], kwargs, _known(result, shapes)

    return read


def _value(node: ast.expr, shapes: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        return _known(node.id, shapes)
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(elt, shapes) for elt in node.elts]
    try:
        return ast.literal_eval(node)
    except ValueError:  # a dtype or a device
        return None


def _known(name: str, shapes: Mapping[str, Any]) -> Any:
    if name in shapes and shapes[name] is None:
        raise UnknownSizeError
    return shapes.get(name)
