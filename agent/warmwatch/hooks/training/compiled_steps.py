"""Steps that Dynamo traces: the code that it compiles marks them.

Where the optimizer's ``step`` is part of a graph, what marks a step (``optimizer``) was traced
away. PyTorch's wrapper of ``step`` reads ``Optimizer._optimizer_step_code``, once for each step, so
Dynamo looks it up on its ``OptimizerVariable``. This hook sees the lookup. It lets the bytecode of
that frame load the optimizer before the graph, and mark its step after it, by a call that Dynamo
skips. Frames without a step stay as they are; graphs, guards and graph breaks of all of them, too.

A graph with several steps marks all of them after it. Code that PyTorch stores elsewhere
(``torch.export``, precompilation) marks none: it has to run without the agent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from warmwatch._guard import quietly
from warmwatch.hooks.points import (
    Installed,
    Listener,
    Replaced,
    first_of,
    look_up,
    skip_frames,
)
from warmwatch.hooks.training.optimizer import STEP_CODE
from warmwatch.shared.user_code import count_traced_step, set_traced_step_hook, wrapper_name

# Methods of ``OptimizerVariable`` that look up an attribute, the newest first: from torch 2.13 on
# and before.
NAMES = ("resolve_type_attr", "var_getattr")
_VARIABLE = "___warmwatch_optimizer"  # the start of a name that no program uses
_CAPTURES = "fullgraph_compiler"  # the backend of a frame that is captured, not run (2.9 on)


def install(listener: Listener) -> Installed:
    with look_up():
        from torch import _dynamo as dynamo

        owner, graph = dynamo.variables.optimizer.OptimizerVariable, dynamo.output_graph.OutputGraph
        original = getattr(owner, name := first_of(owner, NAMES))
        _ = graph.compile_subgraph, graph.add_output_instructions
        bytecode, codegen = dynamo.bytecode_transformation, dynamo.codegen.PyCodegen
        parts = bytecode.create_instruction, bytecode.create_call_function, codegen
    replaced = Replaced()
    emitter = _Emitter(*parts, listener)

    def look_up_attribute(variable: Any, tx: Any, attribute: str, *args: Any, **kwargs: Any) -> Any:
        if attribute == STEP_CODE and replaced.listening:
            quietly("hooks.compiled_steps", emitter.traced, variable, tx)
        return original(variable, tx, attribute, *args, **kwargs)

    def uninstall() -> None:
        set_traced_step_hook(None)
        replaced.undo()

    skip_frames(count_traced_step)
    set_traced_step_hook(listener.on_step)
    replaced.put(owner, name, look_up_attribute)
    return Installed(uninstall=uninstall)


class MadeInside:
    """Stands for the optimizers that one compiled frame creates: each call creates another."""

    param_groups: tuple[dict[str, Any], ...] = ()


class _Emitter:
    """Adds the instructions that mark steps to the frames that Dynamo compiles."""

    def __init__(
        self,
        create_instruction: Callable[..., Any],
        create_call: Callable[..., Sequence[Any]],
        codegen: Callable[..., Any],
        listener: Listener,
    ) -> None:
        self.instruction, self._create_call, self._codegen = (
            create_instruction,
            create_call,
            codegen,
        )
        self._created = listener.created

    def traced(self, variable: Any, tx: Any) -> None:
        """Dynamo traces the end of a step of ``variable``, in PyTorch's wrapper of ``step``."""
        output = tx.output
        if _is_nested(tx) or _is_stored(output):
            return
        var = vars(output).get("compile_subgraph")
        if not isinstance(var, _Traced):
            # on this instance only: it compiles one frame, once
            var = output.compile_subgraph = _Traced(output, self)
        var.variables.append(variable)

    def load(self, output: Any, variable: Any) -> tuple[list[Any], str | Any]:
        """Instructions that store the optimizer in a variable of the frame, and its name.

        None for one that the frame creates; in place of the name an object that stands for it.
        """
        if variable.source is None:
            made = MadeInside()
            self._created(made)
            return [], made
        codegen = self._codegen(output.root_tx)
        codegen(variable.source)
        # PyTorch compares a new name with local variables only: not with those of closures.
        name = output.new_var(_VARIABLE)
        codegen.append_output(self.instruction("STORE_FAST", argval=name))
        return codegen.get_instructions(), name

    def mark(self, loaded: str | Any) -> list[Any]:
        """Instructions that mark a step of what ``load`` returned."""
        is_variable = isinstance(loaded, str)
        mark = [
            self.instruction("LOAD_CONST", argval=count_traced_step),
            self.instruction("LOAD_FAST" if is_variable else "LOAD_CONST", argval=loaded),
            *self._create_call(1, True),
            self.instruction("POP_TOP"),
        ]
        if is_variable:
            mark.append(self.instruction("DELETE_FAST", argval=loaded))
        return mark


class _Traced:
    """In place of ``compile_subgraph`` of a frame that contains steps."""

    def __init__(self, output: Any, emitter: _Emitter) -> None:
        self._output, self._emitter = output, emitter
        self.variables: list[Any] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        output = self._output
        del output.compile_subgraph  # the class's method again
        marks = quietly("hooks.compiled_steps", self._load)
        result = output.compile_subgraph(*args, **kwargs)
        if marks:
            output.add_output_instructions(marks)
        return result

    def _load(self) -> list[Any]:
        """Load the optimizers before the graph; returns the instructions to add after it."""
        emitter, output = self._emitter, self._output
        loads = [emitter.load(output, variable) for variable in self.variables]
        marks = [value for _, loaded in loads for value in emitter.mark(loaded)]
        for instructions, _ in loads:
            output.pregraph_bytecode.extend(instructions)
        return marks


def _is_nested(tx: Any) -> bool:
    """Whether this ``step`` is called by another one, which Dynamo traces too."""
    wrapper, outer = wrapper_name(tx.f_code, tx.f_globals), getattr(tx, "parent", None)
    while outer is not None:
        pair = wrapper_name(outer.f_code, outer.f_globals)
        if pair is not None and wrapper is not None and pair[0] == wrapper[0]:
            return True
        outer = getattr(outer, "parent", None)
    return False


def _is_stored(output: Any) -> bool:
    """Whether the code of this frame may run in another process."""
    return (
        bool(output.export)
        or getattr(output, "package", None) is not None
        or getattr(output.compiler_fn, "__name__", "") == _CAPTURES
    )
