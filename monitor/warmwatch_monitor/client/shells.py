"""The shells for which click completes words.

A file of its own, because click's part takes the time of several of ours: ``cli`` loads both only
while a shell completes.
"""

from __future__ import annotations

import shlex

from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    add_completion_class,
)


@add_completion_class
class _Bash(BashComplete):
    """Bash inserts a value as it is: a run's name, which another user chose, could be a command.

    Click's script drops each backslash.
    """

    source_template = BashComplete.source_template.replace("read type", "read -r type")

    def format_completion(self, item: CompletionItem) -> str:
        return f"{item.type},{shlex.quote(item.value)}"


@add_completion_class
class _Fish(FishComplete):
    """Click's script cuts a value at its first comma: ``--until warm,failed``."""

    source_template = FishComplete.source_template.replace("split ", "split --max 1 ")
