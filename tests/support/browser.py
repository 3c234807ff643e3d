"""Debian's chromium, driven by Playwright; and axe-core. Both brings install-programs.sh."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from support.records import wait_until

AXE = Path(__file__).parents[2] / ".cache" / "axe-core" / "axe.min.js"


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without a window."""
    program = shutil.which("chromium")
    assert program, "there is no chromium; run tests/support/install-programs.sh"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """A page that is open, and what went wrong in it."""

    def __init__(self, browser: Browser, url: str, fragment: str = "", **options: Any) -> None:
        self.errors: list[str] = []
        self.elsewhere: list[str] = []
        context = browser.new_context(**options)
        self.page: Page = context.new_page()
        self.page.set_default_timeout(120_000)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._on_console)
        self.page.on("request", lambda one: self._on_request(one.url, url))
        self.page.goto(f"{url}/{fragment}")

    def _on_console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def _on_request(self, requested: str, url: str) -> None:
        if not requested.startswith(f"{url}/"):
            self.elsewhere.append(requested)

    def until(self, expression: str) -> None:
        """Wait for the value of a JavaScript expression."""
        # evaluated from here: the page's headers forbid it to the page itself
        wait_until(lambda: self.page.evaluate(f"() => {expression}"))

    def text(self, selector: str) -> str:
        """What is shown there."""
        return self.page.inner_text(selector)

    def violations(self) -> list[str]:
        """What axe-core finds to be unusable for some."""
        assert AXE.exists(), "there is no axe-core; run tests/support/install-programs.sh"
        self.page.evaluate(AXE.read_text())
        found = self.page.evaluate("axe.run({resultTypes: ['violations']})")
        return [
            f"{one['id']}: {node['html']}" for one in found["violations"] for node in one["nodes"]
        ]

    def close(self) -> None:
        """Leave it."""
        self.page.context.close()


@contextmanager
def visit(browser: Browser, url: str, fragment: str = "", **options: Any) -> Iterator[Visit]:
    """Open the daemon's page."""
    visited = Visit(browser, url, fragment, **options)
    try:
        yield visited
    finally:
        visited.close()
