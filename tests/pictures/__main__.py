"""Makes docs/pictures anew: ``cd tests && python -m pictures``, in three minutes."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pictures.scene import play, ranks
from support.browser import chromium, visit
from support.daemon import daemon_process
from support.nvml import Standin

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
# name -> how it is looked at
LOOKS = {
    "page": {"viewport": {"width": 1280, "height": 860}},
    "page-dark": {"viewport": {"width": 1280, "height": 860}, "color_scheme": "dark"},
    "page-phone": {"viewport": {"width": 390, "height": 800}, "device_scale_factor": 2},
}


def main() -> None:
    """Play the scene, and look at the page."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        records = Path(place, "records")
        records.mkdir()
        nvml = Standin(Path(place))
        options = ("--dir", str(records))
        with daemon_process(*options, **nvml.environment) as (_, url), ranks(records) as run:
            play(run, nvml)
            _look(url)


def _look(url: str) -> None:
    with chromium() as browser:
        for name, options in LOOKS.items():
            with visit(browser, url, **options) as page:
                page.until("document.querySelectorAll('#recompiles tbody tr').length > 0")
                page.until("document.querySelector('[data-chart=activity] canvas') !== null")
                page.page.wait_for_timeout(1500)
                page.page.screenshot(path=FOLDER / f"{name}.png")
                sys.stdout.write(f"docs/pictures/{name}.png\n")


if __name__ == "__main__":
    main()
