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


def violations(page: Page) -> list[str]:
    """What axe-core finds to be unusable for some."""
    assert AXE.exists(), "there is no axe-core; run tests/support/install-programs.sh"
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run({resultTypes: ['violations']})")
    return [f"{one['id']}: {node['html']}" for one in found["violations"] for node in one["nodes"]]


class Visit:
    """A page that is open, and what went wrong in it.

    Visits without options share a window: a new one takes two processes and most of a visit's time.
    """

    def __init__(self, browser: Browser, url: str, fragment: str = "", **options: Any) -> None:
        self.errors: list[str] = []
        self.elsewhere: list[str] = []
        self._url, self._own = url, bool(options)
        self.page = browser.new_context(**options).new_page() if options else _shared(browser)
        self.page.set_default_timeout(120_000)
        self._listeners = {
            "pageerror": lambda error: self.errors.append(str(error)),
            "console": self._on_console,
            "request": self._on_request,
        }
        for event, listener in self._listeners.items():
            self.page.on(event, listener)
        self.page.goto(f"{url}/{fragment}")

    def _on_console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def _on_request(self, request: Any) -> None:
        if not request.url.startswith(f"{self._url}/"):
            self.elsewhere.append(request.url)

    def until(self, expression: str) -> None:
        """Wait for the value of a JavaScript expression."""
        # evaluated from here: the page's headers forbid it to the page itself
        wait_until(lambda: self.page.evaluate(f"() => {expression}"))

    def text(self, selector: str) -> str:
        """What is shown there."""
        return self.page.inner_text(selector)

    def violations(self) -> list[str]:
        """What axe-core finds to be unusable for some."""
        return violations(self.page)

    def close(self) -> None:
        """Leave it."""
        if self._own:
            self.page.context.close()
            return
        for event, listener in self._listeners.items():
            self.page.remove_listener(event, listener)
        self.page.goto("about:blank")


def _shared(browser: Browser) -> Page:
    """The window that visits share, which none has open now."""
    context = next(iter(browser.contexts), None) or browser.new_context()
    page = next(iter(context.pages), None) or context.new_page()
    assert page.url == "about:blank", f"{page.url} is open in it"
    return page


@contextmanager
def visit(browser: Browser, url: str, fragment: str = "", **options: Any) -> Iterator[Visit]:
    """Open the daemon's page."""
    visited = Visit(browser, url, fragment, **options)
    try:
        yield visited
    finally:
        visited.close()
