"""Draws docs/pictures: ``cd tests && python -m pictures``, in three minutes."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pictures.run import RUN
from pictures.scene import going_on, play, ranks
from support.browser import chromium, visit
from support.daemon import daemon_process
from support.nvml import Standin
from warmwatch_monitor.commands.report.assembly import report
from warmwatch_monitor.commands.report.html import html
from warmwatch_monitor.commands.report.wording import page as page_of
from warmwatch_monitor.output.console import plain

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
        # the ranks first: the daemon would take those that it reads half-made for lost
        with ranks(records) as run, daemon_process(*options, **nvml.environment) as (_, url):
            play(run, nvml)
            with going_on(run, nvml):
                _look(url)
    _look_at_report()


def _look(url: str) -> None:
    with chromium() as browser:
        for name, options in LOOKS.items():
            with visit(browser, url, **options) as page:
                page.until("document.querySelectorAll('#recompiles tbody tr').length > 0")
                page.until("document.querySelector('[data-chart=activity] canvas') !== null")
                page.page.wait_for_timeout(1500)
                page.page.screenshot(path=FOLDER / f"{name}.png")
                sys.stdout.write(f"docs/pictures/{name}.png\n")


def _look_at_report() -> None:
    """The file that ``warmwatch report --html`` writes, of a run built by hand."""
    account = RUN
    made = plain(report(account))
    with tempfile.TemporaryDirectory() as place, chromium() as browser:
        page = Path(place, "report.html")
        page.write_text(html(page_of(made), made, account), encoding="utf-8")
        shown = browser.new_context(viewport={"width": 1000, "height": 700}).new_page()
        shown.goto(page.as_uri())
        shown.screenshot(path=FOLDER / "report.png", full_page=True)
        sys.stdout.write("docs/pictures/report.png\n")


if __name__ == "__main__":
    main()
