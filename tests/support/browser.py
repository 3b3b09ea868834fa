"""A real browser: Debian's Chromium, driven by Playwright, in which any error on the console is a failure."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((path for name in NAMES if (path := shutil.which(name))), None)
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt install chromium")


@contextmanager
def started() -> Iterator[Any]:
    """Start the browser; one at a time in a thread."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@contextmanager
def opened(
    browser: Any, path: Path, width: int = 1100, scheme: str = "light", *, bypass_csp: bool = False
) -> Iterator[Any]:
    """Open a page from disk; whatever it logs, asks for or pops up fails the test.

    Args:
        bypass_csp: let a tool of the tests put its own script into the page.
    """
    size = {"width": width, "height": 900}
    page = browser.new_page(viewport=size, color_scheme=scheme, bypass_csp=bypass_csp)
    faults: list[str] = []
    page.on("console", lambda message: faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("dialog", lambda dialog: (faults.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda request: request.url.startswith(("file:", "data:")) or faults.append(request.url))
    page.goto(path.resolve().as_uri())
    yield page
    page.close()
    assert faults == []
