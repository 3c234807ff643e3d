"""Redacts PyTorch's and Python's texts: names, numbers and places stay, values are removed.

A guard quotes the user's program: ``cfg['prompt'] == 'a patient'``, its source line, and the full
path of its file. By default this module removes all of that before anything is written. So the
journal, ``/status``, the metrics and the logs contain only the redacted text, and no other code has
to redact. ``WARMWATCH_FULL_REASONS=1`` keeps the text unchanged.

What stays: names of variables, attributes, modules, types and functions; numbers, sizes, dtypes,
devices, booleans; a file's base name and line; a tensor's key that looks like a field name
(``batch['input_ids']``), since it names the changed argument; a key of an optimizer's group or
state (``state['step']``). What goes: every other string and dict key (a key may be data), source
lines, folders, and long text. Pure, and of bounded time: text is cut first, and no pattern
backtracks.
"""

from __future__ import annotations

import builtins
import re
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from warmwatch.shared.compilers import help_for
from warmwatch.shared.guard_remedies import IN_RANGE, INTEGER_SETTING, is_in_range

REASON_LIMIT = 1000
_BREAK_LIMIT = 300
_GUARD_LIMIT = 300
_LOOKED_AT = 2_000  # characters of a line
_LINES = 8
_HINTS_LOOKED_AT = 8_000  # characters of an exception's text
_DIGITS = 20

HIDDEN = "'...'"
# An apostrophe follows a letter, as in "doesn't", unless the letter is a string prefix.
_BEGINS = r"""(?:(?<!\w)|(?<=\b[bBfFrRuU])|(?<=\b[bBfFrR]{2})|(?="))"""
_STRING = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
# An optimizer's dicts by their usual names, and the state of one parameter in ``self.state``.
_OF_OPTIMIZER = "state|group|param_group"
_OF_PARAMETER = r"\bstate\[list\((?:dict\.keys\()?(?:[LG]\['\w+'\])?[\w.\[\]]*\(?\)\)\[\d+\]\]"
_TOKEN = re.compile(
    rf"""
      [ ]{{2}}\#[ ](?P<comment>.*)
      # PyTorch's quotes around an argument's name. Those of a key in it are not escaped, and come
      # after a bracket or a comma, where one that ends the name never does.
    | (?P<lead>\b(?:tensor|type[ ]of)[ ])
        '(?P<name>(?:[^'"]|(?:(?<=[\[(])|(?<=,[ ]))(?:{_STRING}))+)'
    | (?P<code>
        (?:\b[LG]\['(?:{_OF_OPTIMIZER})'\]|\b(?:{_OF_OPTIMIZER})|{_OF_PARAMETER})\['[A-Za-z_]\w*'\]
      | \b[LG]\[(?:'[A-Za-z_]\w*'|"[A-Za-z_]\w*")\]  # a variable, as older versions write it
      | \b(?:_modules|_parameters|_buffers|keywords|kwargs|defaults)\[(?:'\w+'|"\w+")\]
      | \b__dict__\)?\[(?:'\w+'|"\w+")\]
      | \[(?:'[a-z_]{{1,32}}'|"[a-z_]{{1,32}}")\]  # a tensor's key, before its size
        (?=(?:\.\w+|\[\w+\]|\['\w+'\]|\["\w+"\]){{0,9}}\.(?:size|stride)\(\)\[)
      | \bparam_groups\[\d+\]\[(?:'\w+'|"\w+")\]
      | \bhasattr\([\w.\[\]]+(?:\['\w+'\][\w.\[\]]*)?,[ ]'\w+'\)
      | \b___dict_contains\('[A-Za-z_]\w*',[ ](?=[\w.\[\]']*\.__dict__\))
      | ^(?:[\d/_!]+:[ ])?Duplicate[ ]tensors[ ]found:[ ]\[["']\w+["'](?:,[ ]["']\w+["'])*\]
      | a[ ]tensor[ ]type,[ ]'[ ]but[ ]found[ ]  # PyTorch's own lonely quote (2.6 to 2.13)
      | <class[ ]'[\w.<>]+'>
      | \bdevice\(type='(?:cpu|cuda|xpu|mps|hpu|xla|meta)'
      )
      # the object itself, not its class, as torch 2.11 writes it
    | (?<=\d\),[ ]type=)(?!<class[ ]')(?P<object>.+?)(?=[ ]{{2}}\#[ ]|$)
    | {_BEGINS}(?:(?P<string>{_STRING})|(?P<torn>['"].*))
    | (?<![\w.+@~/\\)\]-])(?:~|[A-Za-z]:)?(?:[/\\][\w.+@-]*)*[/\\](?P<base>[\w.+@-]+)
    | (?<![\w.+@~/\\-])(?:[\w.+@-]+[/\\])+(?P<script>[\w.+@-]+\.py)\b
    | (?P<number>(?<![\d.])\d{{{_DIGITS},}})
    """,
    re.VERBOSE | re.DOTALL,
)
# An exception's message has no quotes around it, and may be the user's text.
_RAISED = re.compile(
    r"\b(\w*(?:[Ee]xception|[Ee]rror)\b[^:]{0,100}|unhandled args[^:]{0,100}|python_constant): .*",
    re.DOTALL,
)
# What PyTorch's explanation of a graph break says that Dynamo cannot trace.
_EXPLAINED = re.compile(
    r"\b(?:[Oo]perator|method|function|builtin|breaks on|calling|enter a) "
    r"`(?:<class ')?([A-Za-z_][\w.]{0,80}?)(?:'>)?\.?(?:\(\))?`"
    r"(?: in file `[^`\n]{0,400}?([\w-]{1,80}\.py)`)?(?: of class `(\w{1,80})`)?"
)
_NO_CLASS = ("type", "unknown")  # as PyTorch calls the classes of some
# The class of a class method, which the explanation calls `type`.
_OF_CLASS = re.compile(
    r"\bUserDefinedClassVariable\(<class '(?:\w{1,80}\.){0,9}(\w{1,80})'>\) (\w+)"
)
# The class of an object that these are about, where the explanation names no function.
_OF_OBJECT = (
    *("missing tp_iter", "Missing tp_iternext", "Failed to convert args/kwargs to proxy"),
    *("Observed exception", "torch.* op returned non-Tensor", "An opaque object was created"),
)
_OBJECT = re.compile(
    r"\b(?:UserDefinedObjectVariable\(|next\(\) on |raised exception |target: <(?:built-in )?"
    r"(?:function|method) |object type: <class '(?:\w{1,80}\.){0,9})([A-Za-z_]\w{0,80})"
)
_MODULE = re.compile(r"\bmodule: ([\w.]{1,80}), qualname: ")  # as of torch.jit.isinstance
_NO_MODULE = re.compile(r"<unknown module>\.|(?<= builtin )None\.")  # PyTorch's, before a name
# In 2.6 PyTorch's own quotes are around this whole reason.
_SKIPPED = re.compile(
    r"^'((?:skip function [\w.<>]{1,200} in file |inline in skipfiles: )[^']{1,1000})'(?:', .*)?$"
)
# In 2.6 sentences follow it, with another function as an example.
_BUILTIN = re.compile(r"^(Graph break due to unsupported (?:Python )?builtin [\w.<>]{1,200})\. .*")
_WITH_ADDRESS = re.compile(r"<function ([\w.<>]{1,200}) at 0x[0-9a-f]+>")
_HINTED = " (HINT: "  # follows a guard or its place
# Lines of an exception: PyTorch's hints, and the exception that a backend raised.
_HINT = re.compile(r"^ {0,4}Hint: (.{1,600})$", re.MULTILINE)
_IN_BACKEND = re.compile(r"backend=.{0,200} raised:$")
_TYPES = re.compile(
    r"(?:(?:[A-Z]\w{0,60}(?:Error|Exception|Failed|Interrupt)"
    r"|InvalidCxxCompiler|TritonMissing|GPUTooOldForTriton|MissingOperatorWith(?:out)?Decomp)"
    r"\b(?:: |$))+"
)
# Hints that help nobody who does not work on PyTorch.
_NO_HELP = (
    "This graph break ",
    "This is likely to be a Dynamo bug",
    "It may be possible to write Dynamo tracing rules",
    "Please report an issue",
    *("Avoid ", "Check ", "Consider using an equivalent", "Do not trace", "Dynamo does not"),
    *("Ensure ", "If Dynamo is ", "If it is ", "Make sure ", "Please ", "see ", "Your code may"),
)
# PyTorch's own sentence in the exception of an operator that cannot be traced.
_NO_FAKE = re.compile(r"\bPlease use (`[A-Za-z_][\w.]{0,80}\.register_fake`)")
_FIELD = re.compile(r"""\[(['"])([a-z_]{1,32})\1\]""")
_ENTRY = re.compile(r"\s*!?\d+/\d[\d/_]*:\s")
_FUNCTION = ("<function ", "<built-in ", "<bound method ")  # their repr()
# PyTorch's own lines that set a condition on a size, or make a constant of a number, such as
# `(_inductor/codegen/cpp.py:7 in f)` and `(nn/functional.py:1491 in dropout)`
_OWN = r"\((?:_\w+|nn)(?:/\w+)+\.py:\d+ in [\w.<>]+\)"
_OWNS = rf"(?P<own>{_OWN}(?: and {_OWN})*)"
# PyTorch's remark, instead of such a line, that sizes 0 and 1 are compiled separately
_ZERO_ONE = re.compile(
    r" \(user code shown is first use [^()]{1,300}(?:\([^()]{1,60}\))?\)(?: and(?= \())?"
)
_PLACE = re.compile(
    rf"(?P<path>.*):(?P<line>\d+) in (?P<name>[\w.<>]+)(?: {_OWNS})?(?: \(HINT: .*)?"
)
_OWN_ALONE = re.compile(_OWNS)
_FILE = re.compile(r"[\w .+@-]+\.py|<[\w -]+>")


_TEXTS = frozenset({"reason", "cudagraph_skip", "failure_reason"})  # PyTorch's, in a fact


@dataclass(frozen=True, slots=True, kw_only=True)
class Redactors:
    """Formats the reasons of recompiles and graph breaks, and the agent's own errors."""

    recompile: Callable[[str], str]
    graph_break: Callable[[str], str]
    failure: Callable[[str], str]
    error: Callable[[Exception], str]

    def fact(self, fact: str, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """``values`` of a fact (``hooks.points.Fact``), with PyTorch's texts redacted."""
        if _TEXTS.isdisjoint(values):
            return values
        recompiles = fact in ("recompile", "compilation")
        redact = {
            "reason": self.recompile if recompiles else self.graph_break,
            "cudagraph_skip": self.graph_break,
            "failure_reason": self.failure,
        }
        found = {key: redact[key](str(values[key])) for key in _TEXTS if values.get(key)}
        return {**values, **found}


def redactors(*, full: bool) -> Redactors:
    """PyTorch's and Python's text if ``full``, else without the user's values."""
    if full:
        return Redactors(recompile=_whole, graph_break=_whole, failure=_whole, error=_whole_error)
    return Redactors(recompile=recompile, graph_break=graph_break, failure=failure, error=error)


def recompile(text: str) -> str:
    """The reasons of a recompile, one line for each compiled entry, without the user's stack."""
    first, *others = text.strip()[: _LINES * _LOOKED_AT].split("\n")
    lines = [first, *(line for line in others if _ENTRY.match(line))]
    return "\n".join(map(guard, lines[:_LINES]))[:REASON_LIMIT]


@lru_cache(maxsize=64)  # one recompile needs each of its lines several times
def guard(line: str) -> str:
    """One guard and its place: ``0/0: lr == 0.1  # sgd.py:31 in step``.

    Of PyTorch's hint on an integer attribute of a module, the name of the setting stays; of a line
    that passes the integer to ``range()``, that.
    """
    reduced, comment = _scanned(line[:_LOOKED_AT])
    code, _, hint = reduced.partition(_HINTED)  # here, if the user's line is unknown
    place = _place(comment)
    if INTEGER_SETTING in (hint or comment.rpartition(_HINTED)[2]):
        place = f"{place or '  #'} ({INTEGER_SETTING})"
    if is_in_range(line[:_LOOKED_AT]):
        place = f"{place or '  #'} {IN_RANGE}"
    return _cut(code.rstrip(), _GUARD_LIMIT) + place


@lru_cache(maxsize=1024)
def graph_break(text: str) -> str:
    """The reason of a graph break: the first line, and the name of what Dynamo cannot trace, with
    its file.

    From torch 2.7 on, the explanation below that line has the name: "Failed to trace builtin
    operator", "... how to trace builtin operator `print` with ...". Leaves out the message of an
    exception, if that is the reason.
    """
    first, _, explanation = _NO_MODULE.sub("", text.strip()).partition("\n")
    first = _WITH_ADDRESS.sub(r"\1", _BUILTIN.sub(r"\1", _SKIPPED.sub(r"\1", first)))
    reduced, _ = _scanned(first[:_LOOKED_AT])
    explanation = explanation[:_LOOKED_AT]
    pattern = _OBJECT if first.startswith(_OF_OBJECT) else _EXPLAINED
    named, of_class = pattern.search(explanation), _OF_CLASS.search(explanation)
    called = named[1] if named else ""
    if of_class and of_class[2] == called:
        called = f"{of_class[1]}.{called}"
    elif named and pattern is _EXPLAINED and named[3] and named[3] not in _NO_CLASS:
        called = f"{named[3]}.{called}"
    elif hasattr(builtins, called) and (module := _MODULE.search(explanation)):
        called = f"{module[1]}.{called}"
    name = f" `{called}`" if called and called not in reduced else ""
    name += f" in {named[2]}" if named and pattern is _EXPLAINED and named[2] else ""
    return _cut(_RAISED.sub(r"\1: ...", reduced), _BREAK_LIMIT - len(name)) + name


@lru_cache(maxsize=64)
def failure(text: str) -> str:
    """Why a compilation failed: the types of the exceptions, or PyTorch's words for a graph break.

    A message of any other exception may be the user's text.
    """
    first, _, rest = text.strip().partition("\n")
    if _IN_BACKEND.match(first):
        first, _, rest = rest.partition("\n")
    if types := _TYPES.match(first[:_LOOKED_AT]):
        return types[0].removesuffix(": ")
    return graph_break(text)


@lru_cache(maxsize=1024)
def hint(text: str) -> str | None:
    """The first hint of PyTorch in an exception's text that helps its user; ``None`` without one.

    From torch 2.7 on, such a line follows the reason of a graph break.
    """
    for match in _HINT.finditer(text[:_HINTS_LOOKED_AT]):
        if not match[1].startswith(_NO_HELP):
            return _sentences(_scanned(match[1])[0], _BREAK_LIMIT)
    return None


def hint_of_failure(text: str) -> str | None:
    """What to do about an operator without a fake implementation, or a machine that lacks
    something; of any other exception the message may be the user's text."""
    if help := help_for(text[:_HINTS_LOOKED_AT]):
        return help
    match = _NO_FAKE.search(text[:_HINTS_LOOKED_AT])
    return f"Use {match[1]} to add a fake implementation of the operator." if match else None


def error(raised: Exception) -> str:
    """An error of the agent: type and place, since its message may quote anything."""
    place = ""
    for frame, line in traceback.walk_tb(raised.__traceback__):
        place = f" at {_base(frame.f_code.co_filename)}:{line}"
    return f"{type(raised).__name__}{place}"


def _whole(text: str) -> str:
    return text.strip()[:REASON_LIMIT]


def _whole_error(raised: Exception) -> str:
    return f"{error(raised)}: {raised}"[:REASON_LIMIT]


def _scanned(text: str) -> tuple[str, str]:
    """``text`` up to its comment, redacted; and the comment, unchanged."""
    parts, at, comment = [], 0, ""
    for token in _TOKEN.finditer(text):
        parts.append(text[at : token.start()])
        at = token.end()
        if token["comment"] is not None:
            comment = token["comment"]
            break
        parts.append(_reduced(token))
        if _is_half(token["string"]):
            at = len(text)
            break
    else:
        parts.append(text[at:])
    return "".join(parts).strip(), comment


def _reduced(token: re.Match[str]) -> str:
    if token["name"]:
        return f"{token['lead']}'{_tensor(token['name'])}'"
    if token["string"] or token["torn"]:
        return HIDDEN
    if token["object"]:
        return "<class 'function'>" if token["object"].startswith(_FUNCTION) else HIDDEN
    if token["number"]:
        return f"{token['number'][:_DIGITS]}..."
    return token["code"] or token["base"] or token["script"]


def _tensor(name: str) -> str:
    """A tensor's name, with the keys in it that look like field names."""
    parts, at = [], 0
    for field in _FIELD.finditer(name):
        parts += [_scanned(name[at : field.start()])[0], field[0]]
        at = field.end()
    return "".join([*parts, _scanned(name[at:])[0]])


def _is_half(string: str | None) -> bool:
    """Whether its quotes may belong to a name with a key in it, so that the key comes next.

    It ends where a key begins, or holds a quote of the other kind, which may be the key's.
    """
    if string is None:
        return False
    inner = string[1:-1]
    return inner.rstrip().endswith(("[", "(", ",")) or ("'" in inner or '"' in inner)


def _place(comment: str) -> str:
    """The place alone, from the user's line and its place; empty if it names no file.

    PyTorch's own places follow it, or are alone: they show who sets a condition on a size.
    """
    last = _ZERO_ONE.sub("", comment.rpartition("  # ")[2].rstrip())
    if own := _OWN_ALONE.fullmatch(last):
        return f"  # {own[0]}"
    match = _PLACE.fullmatch(last)
    base = _base(match["path"]) if match else ""
    if not match or not _FILE.fullmatch(base):
        return ""
    own_places = f" {match['own']}" if match["own"] else ""
    return f"  # {base}:{match['line']} in {match['name']}{own_places}"


def _base(path: str) -> str:
    return path.replace("\\", "/").rpartition("/")[2]


def _sentences(text: str, limit: int) -> str:
    """The first sentences of ``text``, as many as fit."""
    end = text.rfind(". ", 0, limit) + 1
    return text[:end] if len(text) > limit and end else _cut(text, limit)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}..."
