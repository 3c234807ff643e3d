"""Every small change of a module that a test should fail of. Pure.

A change is named by where it is and what it does, never by a line, so that a list of those that may
be survives what moves them. Left alone is what no test can fail of: annotations and the decorators
of classes (and what a ``Struct`` has in their place), docstrings, ``assert`` (our own invariants),
type variables and ``__all__``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass

_SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Continue: ast.Break,
    ast.Break: ast.Continue,
}
_PAIRS = (("min", "max"), ("any", "all"), ("partition", "rpartition"))
_NAMES = {**dict(_PAIRS), **{b: a for a, b in _PAIRS}}
_FOR_TYPES = ("TypeVar", "cast")
_LONGEST = 160

TELL = "__tell_call__"  # a module made ``with_calls_reported`` needs this name


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The ``number``-th place of ``source``, replaced by ``made``.

    Attributes:
        line: where that is. function: the first line of the function that it is in, 0 of none.
    """

    source: str
    number: int
    made: ast.AST
    line: int
    function: int

    def tree(self) -> ast.Module:
        """The whole module with it."""
        return self._changed()[0]

    @property
    def name(self) -> str:
        """Where it is and what it does."""
        place = _places(ast.parse(self.source))[self.number]
        _, after = self._changed()
        texts = _text(place.statement), _text(after)
        if texts[0] == texts[1] or max(map(len, texts)) > _LONGEST:
            short = _without_like(place.node, self.made), _without_like(self.made, place.node)
            texts = _text(short[0]), _text(short[1])
        return f"{place.where}: {texts[0]} -> {texts[1]}"

    def _changed(self) -> tuple[ast.Module, ast.AST]:
        """The module, and the statement in it that is another one."""
        module, made = ast.parse(self.source), deepcopy(self.made)
        place = _places(module)[self.number]
        for parent in ast.walk(module):
            for field, value in ast.iter_fields(parent):
                if value is place.node:
                    setattr(parent, field, made)
                elif isinstance(value, list):
                    value[:] = [made if one is place.node else one for one in value]
        module = ast.fix_missing_locations(module)
        return module, made if place.statement is place.node else place.statement


def changes(source: str) -> Iterator[Change]:
    """All of a module's."""
    for number, place in enumerate(_places(ast.parse(source))):
        for made in _made(place.node):
            line = getattr(place.node, "lineno", place.statement.lineno)
            yield Change(
                source=source, number=number, made=made, line=line, function=place.function
            )


def with_calls_reported(source: str) -> ast.Module:
    """The module, each function of which first tells ``TELL`` the line of its outermost one."""
    module = ast.parse(source)
    for place in _places(module):
        if isinstance(place.statement, ast.FunctionDef) and place.statement is place.node:
            report = ast.parse(f"{TELL}({place.function})").body
            after = int(ast.get_docstring(place.statement) is not None)
            place.statement.body[after:after] = report
    return ast.fix_missing_locations(module)


def _first_line(function: ast.FunctionDef) -> int:
    return min(one.lineno for one in (function, *function.decorator_list))


@dataclass(frozen=True, slots=True)
class _Place:
    """What may be changed: the class or function that it is in, the statement that shows it (of a
    parameter's default that value alone), and itself.
    """

    where: str
    function: int
    statement: ast.stmt | ast.expr
    node: ast.AST


def _places(module: ast.Module) -> list[_Place]:
    return list(_inside(module, _Place("module", 0, ast.Pass(), module)))


def _inside(node: ast.AST, outer: _Place) -> Iterator[_Place]:
    for child in _children(node):
        if _is_left_alone(child):
            continue
        where, function = outer.where, outer.function
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            where = child.name if where == "module" else f"{where}.{child.name}"
        if isinstance(child, ast.FunctionDef):
            function = function or _first_line(child)
        statement = child if isinstance(child, ast.stmt) else outer.statement
        if isinstance(node, ast.arguments) and isinstance(child, ast.expr):
            where, statement = f"{where}({_parameter(node, child)})", child
        place = _Place(where, function, statement, child)
        yield place
        yield from _inside(child, place)


def _parameter(arguments: ast.arguments, default: ast.expr) -> str:
    """Whose default it is."""
    positional = (*arguments.posonlyargs, *arguments.args)
    of_the_last = zip(reversed(positional), reversed(arguments.defaults), strict=False)
    named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return next(one.arg for one, value in (*of_the_last, *named) if value is default)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "type_comment", "ctx", "decorator_list"):
            continue
        if isinstance(node, ast.ClassDef) and field == "keywords":
            continue
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, ast.AST):
                yield one


def _is_left_alone(node: ast.AST) -> bool:
    match node:
        case ast.Assert() | ast.Import() | ast.ImportFrom():
            return True
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return True
        case ast.Assign(value=ast.Call(func=ast.Name(id="TypeVar"))):
            return True
        case ast.Call(func=ast.Name(id=name)):
            return name in _FOR_TYPES
    return False


def _made(node: ast.AST) -> Iterator[ast.AST]:
    """What a node is replaced by, one after the other."""
    match node:
        case ast.Constant(value=value):
            yield from map(ast.Constant, _other_values(value))
        case ast.Name(id=name) if name in _NAMES:
            yield ast.Name(id=_NAMES[name], ctx=ast.Load())
        case ast.Attribute(attr=name) if name in _NAMES:
            yield ast.Attribute(value=node.value, attr=_NAMES[name], ctx=ast.Load())
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert()):
            yield node.operand
        case ast.BinOp() | ast.BoolOp() | ast.AugAssign():
            yield _with(node, op=_SWAPPED[type(node.op)]())  # type: ignore[arg-type]
        case ast.Compare():
            for at, op in enumerate(node.ops):
                ops = [*node.ops[:at], _SWAPPED[type(op)](), *node.ops[at + 1 :]]
                yield _with(node, ops=ops)
        case ast.Continue() | ast.Break():
            yield _SWAPPED[type(node)]()
        case ast.Call():
            yield from _other_calls(node)
        case ast.If() | ast.IfExp() | ast.While() if _is_plain(node.test):
            yield _with(node, test=_not(node.test))
        case ast.comprehension(ifs=[test, *rest]):
            yield _with(node, ifs=[_not(test), *rest])
    yield from _other_statements(node)


def _other_statements(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Expr() | ast.Raise():
            yield ast.Pass()
        case ast.Return(value=value) if value is not None and not _is_none(value):
            yield ast.Return(value=ast.Constant(None))
        case ast.Assign(value=value) | ast.AnnAssign(value=value) if not _is_none(value):
            if value is not None:
                yield _with(node, value=ast.Constant(None))


def _other_values(value: object) -> Iterator[object]:
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield value + 1 if value + 1 != value else value * 2
    elif isinstance(value, str):
        yield "" if value else "XX"
    elif isinstance(value, bytes):
        yield b"" if value else b"XX"


def _other_calls(node: ast.Call) -> Iterator[ast.AST]:
    for at, argument in enumerate(node.args):
        if not isinstance(argument, ast.Starred) and not _is_none(argument):
            args = [*node.args[:at], ast.Constant(None), *node.args[at + 1 :]]
            yield _with(node, args=args)
    for at, keyword in enumerate(node.keywords):
        rest = [*node.keywords[:at], *node.keywords[at + 1 :]]
        if keyword.arg is not None:
            yield _with(node, keywords=rest)
            if not _is_none(keyword.value):
                other = ast.keyword(arg=keyword.arg, value=ast.Constant(None))
                yield _with(node, keywords=[*rest, other])


def _is_plain(test: ast.AST) -> bool:
    """Whether nothing else changes a condition."""
    return not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp)


def _is_none(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _not(test: ast.expr) -> ast.expr:
    return ast.UnaryOp(op=ast.Not(), operand=test)


def _with(node: ast.AST, **fields: object) -> ast.AST:
    changed = deepcopy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _without_like(node: ast.AST, other: ast.AST) -> ast.AST:
    """A call without the named arguments that it has in common with another."""
    if not isinstance(node, ast.Call) or not isinstance(other, ast.Call):
        return node
    others = {ast.dump(keyword) for keyword in other.keywords}
    return _with(node, keywords=[one for one in node.keywords if ast.dump(one) not in others])


def _text(node: ast.AST) -> str:
    """A line of source for it: of what has a body, without that."""
    bare = deepcopy(node)
    for field in ("body", "orelse", "finalbody", "handlers", "decorator_list"):
        if isinstance(getattr(bare, field, None), list):
            setattr(bare, field, [])
    text = " ".join(ast.unparse(ast.fix_missing_locations(bare)).split())
    return text.removesuffix(":")
