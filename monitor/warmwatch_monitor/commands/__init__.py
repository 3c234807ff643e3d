"""The table of commands. Standard library only: ``without_extra`` reads it too."""

from __future__ import annotations

# the groups of --help: command -> the module of the monitor that holds it under its own name, and
# its line there
GROUPS = {
    "Watch": {
        "status": (".commands.status", "Is it still compiling? A sentence, a table."),
        "top": (".commands.top.command", "Runs and ranks on a live screen."),
        "wait": (".commands.wait", "Block until a run is warm, or in another state."),
        "run": (".commands.run", "Run a training with the agent attached."),
    },
    "Afterwards": {
        "report": (".commands.report.command", "Where the time of a run went."),
        "compare": (".commands.compare.command", "Runs side by side, and the break-even."),
        "runs": (".commands.runs", "List runs: the living, then earlier ones."),
        "export": (".commands.export", "A run as a Perfetto trace or CSV."),
    },
    "Choose": {
        "modes": (".commands.modes.command", "Measure a script in each mode of torch.compile."),
        "check": (".commands.check.command", "Fail in CI if a training compiles more."),
    },
    "Debug": {
        "stacks": (".commands.stacks", "Show the stacks of ranks that compile."),
        "doctor": (".commands.doctor.command", "Find problems and say how to fix them."),
    },
    "Serve": {
        "serve": (".server.command", "Start the daemon: page, /status, /metrics."),
        "demo": (".commands.demo", "Watch a small model compile; no GPU needed."),
    },
}
# all exit codes, for --help; docs/reference/commands.md has the cases of each
EXIT_CODES = {
    (0,): "warm, or done",
    (1,): "failed",
    (2,): "usage",
    (3,): "not warm",
    (4,): "trouble",
    (5,): "no run",
    (6,): "no answer",
    (124,): "timeout of wait",
    (126, 127): "CMD cannot be run",
    (130,): "Ctrl-C",
    (141,): "the reader of wait is gone",
}
COMMANDS = {name: entry for group in GROUPS.values() for name, entry in group.items()}
