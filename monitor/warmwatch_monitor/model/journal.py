"""What a record's journal tells beside compilations: what was left uncompiled, and long steps."""

from __future__ import annotations

from msgspec import Struct


class GraphBreak(Struct, frozen=True, kw_only=True):
    """A reason for which Dynamo broke graphs, and how often so far.

    ``name``, ``file``, ``line``: where, of several places the last.
    """

    reason: str
    count: int
    name: str | None = None
    file: str | None = None
    line: int | None = None


class Fallback(Struct, frozen=True, kw_only=True):
    """A frame that hit the recompile limit, from a record's journal.

    Attributes:
        at_ns: when. step: how many steps there were; its new inputs run eagerly from then on.
        name, file, line: the function. id: of the compilation that PyTorch refused. limit: the
        limit that it hit, ``setting`` the config's name for it.
    """

    at_ns: int
    step: int
    name: str | None = None
    limit: int | None = None
    setting: str | None = None
    file: str | None = None
    line: int | None = None
    id: str | None = None


class CudagraphSkip(Struct, frozen=True, kw_only=True):
    """CUDA graphs left out as a graph ran, from a record's journal: no compilation has the reason.

    Attributes:
        at_ns: when. reason: PyTorch's words. name, file, line: of the user's, what makes it so.
    """

    at_ns: int
    reason: str
    name: str | None = None
    file: str | None = None
    line: int | None = None


class LongStep(Struct, frozen=True, kw_only=True):
    """A step without compile activity that came far later than usual, from a record's journal.

    Attributes:
        at_ns: when it ended. step: which one. seconds: since the one before, ``usual_seconds`` the
        median then. saving_seconds, evaluating_seconds, data_seconds: of it, what the training
        said it saved and evaluated, and waiting for batches; between_cells_seconds: in which no
        cell of its notebook ran.
        batches: that were handed out in it, ``batches_usual`` in a usual step; each ``None`` where
        there was none. left_out: how many others the journal left out before it.
    """

    at_ns: int
    step: int
    seconds: float
    usual_seconds: float
    saving_seconds: float = 0.0
    evaluating_seconds: float = 0.0
    between_cells_seconds: float = 0.0
    data_seconds: float | None = None
    batches: int | None = None
    batches_usual: float | None = None
    left_out: int = 0
