"""``%load_ext warmwatch`` in a real notebook: a kernel of IPython that runs its cells."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from support import slots
from support.trainings import PRELUDE, environment

nbclient = pytest.importorskip("nbclient", reason="no Jupyter here: make test-frameworks")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

TRAIN = """
model = make(); compiled = torch.compile(model); optimizer = torch.optim.SGD(model.parameters())
losses = train(compiled, optimizer, 8)
"""


def shown(cell: Any) -> list[str]:
    displays = [one for one in cell.outputs if one.output_type == "display_data"]
    return [one["data"]["text/plain"] for one in displays]


def test_only_the_cell_that_trains_shows_the_answer(
    records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(records).items():
        monkeypatch.setenv(name, value)
    cells = ["%load_ext warmwatch", PRELUDE, TRAIN, "2 + 2", "train(compiled, optimizer, 4);"]
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source) for source in cells]
    )
    # without the last one it goes on where an output comes 4 s after its cell is over
    patience = {"timeout": 600, "startup_timeout": 600, "iopub_timeout": 600}
    client = nbclient.NotebookClient(notebook, kernel_name="python3", **patience)
    client.execute(cwd=str(records.parent))
    loaded, prelude, first, sum_, second = map(shown, notebook.cells)
    assert loaded == prelude == sum_ == []
    assert len(first) == len(second) == 1  # one display, updated
    assert first[0].startswith("warmwatch: warm since step 4: ")
    assert re.search(r"a step so far; 8 steps, .* s of compiling$", first[0])
    assert second[0].endswith("; 4 steps")
    data = notebook.cells[2].outputs[-1]["data"]
    assert data["text/html"].startswith('<div style="border-left: .4em solid #009b6d;')


def test_between_two_cells_the_notebook_waits_for_its_user(
    records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(records).items():
        monkeypatch.setenv(name, value)
    look = "from support import slots; from pathlib import Path"
    seen = f"seen = slots.read(slots.only(Path({str(records)!r}))).compile"
    shown = "print(seen.between_cells_ns > 0, seen.between_cells_since_ns)"
    cells = [
        *("import warmwatch.auto", PRELUDE, TRAIN, look),
        f"{seen}; {shown}",
    ]
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source) for source in cells]
    )
    patience = {"timeout": 600, "startup_timeout": 600, "iopub_timeout": 600}
    client = nbclient.NotebookClient(notebook, kernel_name="python3", **patience)
    with client.setup_kernel(cwd=str(records.parent)):
        for number, cell in enumerate(notebook.cells):
            client.execute_cell(cell, number)
        idle = slots.read(slots.only(records))
        assert notebook.cells[-1].outputs[0]["text"] == "True 0\n"
        assert idle.compile.between_cells_since_ns >= idle.steps.last_step_ns > 0
