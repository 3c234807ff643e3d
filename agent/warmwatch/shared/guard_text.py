"""The guard in an entry of PyTorch's reasons for a recompile, and the names in it. Pure."""

from __future__ import annotations

import re

ENTRY = r"^\s*!?[\d/_]+:\s*"  # `0/1: `, before the guard of that entry
# A variable; a global one of an imported module, with the module.
LOCAL = r"\b[LG]\[['\"](?:__import_\w+['\"]\]\.|(\w+)['\"]\])"
# A key of a dict that is an object, such as a parameter; torch 2.6 has the second.
_KEY = r"\[list\((?:dict\.keys\([^()]*\)|[^()]*\.keys\(\))\)\[\d+\]\]"
# Around a number that the code makes a constant; torch 2.13 has it no more.
_AS_TENSOR = r"\b___as_tensor\(([^()]{1,200})\)\.item\(\)"
# A condition that the code or PyTorch sets on sizes and integers that are dynamic
COMPARES = r" (?:<=?|>=?|!=|or|and) |^\(.{1,200}\) == "
_OF_NUMPY = r"\b___from_numpy\(([\w.\[\]'\"]{1,200})\)"  # an array of NumPy
_OF_ENVIRONMENT = r"\bos\.environ\._data\[b"
ON_PARAMETER = ". Guard failed on a parameter"  # PyTorch's text after the reason itself
_REGISTERED = r"\.(?:_parameters|_buffers|_modules|__dict__)\[['\"](?P<name>\w+)['\"]\]"
# An attribute that a class has, or one that it inherits from
_OF_CLASS = (
    r"\b(?:dict\()?type\((?P<name>[\w.\[\]'\"]{1,200})\)(?:\.__mro__\[\d+\])?"
    r"\.__dict__\)?\[['\"](?P<attribute>\w+)['\"]\]"
)


def guard_of(entry: str) -> str:
    """The guard in the first line of an entry, without its number and the user's line."""
    line = entry.strip().partition("\n")[0]
    guard = re.sub(ENTRY, "", line).partition("  # ")[0].partition(ON_PARAMETER)[0]
    named = re.sub(_KEY, "['...']", re.sub(LOCAL, r"\1", guard.strip().removesuffix(".")))
    named = re.sub(_OF_NUMPY, r"\1", re.sub(_OF_ENVIRONMENT, "os.environ[", named))
    of_class = re.sub(_OF_CLASS, r"\g<name>.__class__.\g<attribute>", named)
    return re.sub(_AS_TENSOR, r"\1", of_class)


_IN_CLOSURE = r"(?<![\w.\]])([\w.]+)\.__closure__\[([A-Za-z_]\w*)\]\.cell_contents([\w.\[\]'\"]*)"


def attribute(name: str) -> str:
    """``self.l.weight`` for ``self._modules['l']._parameters['weight']``, between backticks."""
    registered = re.sub(_REGISTERED, r".\g<name>", name)
    return re.sub(_IN_CLOSURE, r"\2\3` in the closure of `\1", registered)
