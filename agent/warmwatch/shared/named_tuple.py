"""``NamedTuple`` as ``typing`` has it, defined in a tenth of the time.

``typing``'s compiles a constructor and checks each annotation: 6 million instructions for
``CompileCounts``, which each command and each attached process defines. Its constructor is two to
three times as fast, so what is made for each rank at each poll has it (``verdict``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    from collections import _tuplegetter  # what a namedtuple's fields are

    _tuple = tuple.__new__

    class NamedTuple(tuple):
        """A tuple with named fields: the annotated names of the class, in their order."""

        def __init_subclass__(cls) -> None:
            names = cls._fields = cls.__match_args__ = tuple(cls.__annotations__)
            cls._field_defaults = {name: vars(cls)[name] for name in names if name in vars(cls)}
            cls._in_order = {name: cls._field_defaults.get(name) for name in names}
            cls._required = cls._in_order.keys() - cls._field_defaults
            for place, name in enumerate(names):
                setattr(cls, name, _tuplegetter(place, None))

        def __new__(cls, /, *values: Any, **named: Any) -> Any:
            given = {**dict(zip(cls._fields, values, strict=False)), **named}
            made = _tuple(cls, {**cls._in_order, **given}.values())
            twice_or_too_many = len(given) < len(values) + len(named)
            unknown = len(made) > len(cls._fields)
            if twice_or_too_many or unknown or not cls._required <= given.keys():
                raise TypeError(f"{cls.__name__} has the fields {', '.join(cls._fields)}")
            return made

        _make = classmethod(_tuple)

        def _asdict(self) -> dict[str, Any]:
            return dict(zip(self._fields, self, strict=True))

        def _replace(self, /, **changes: Any) -> Any:
            changed = _tuple(type(self), map(changes.pop, self._fields, self))
            if changes:
                raise ValueError(f"{type(self).__name__} has no field {', '.join(changes)}")
            return changed

        def __repr__(self) -> str:
            fields = ", ".join(f"{name}={value!r}" for name, value in self._asdict().items())
            return f"{type(self).__name__}({fields})"

        def __getnewargs__(self) -> tuple[Any, ...]:
            return tuple(self)
