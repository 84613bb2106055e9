"""What tests of the studio share: models, a running studio, a page in a browser."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from chromium import find_chromium
from running_studio import RunningStudio, start_fake_studio

from clearhead.studio.sources import Sources

GOLDEN = Path(__file__).parents[1] / "golden"
MILLISECONDS = 60_000  # how long a browser waits for something to appear


@pytest.fixture(scope="session")
def sources() -> Sources:
    """The small trained models of tests/golden."""
    return Sources([str(path.parent) for path in sorted(GOLDEN.glob("*/config.json"))])


@pytest.fixture(scope="session")
def lecture() -> Sources:
    """The built-in models."""
    return Sources([], lecture=True)


@pytest.fixture(scope="session")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStudio]:
    """A running studio with the built-in models."""
    running = RunningStudio("--demo", folder=tmp_path_factory.mktemp("studio"))
    yield running
    running.stop()


@pytest.fixture(scope="session")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStudio]:
    """A running studio with the questions of fake_worker.py, such as one that hangs."""
    running = start_fake_studio(tmp_path_factory.mktemp("fake"))
    yield running
    running.stop()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium, as Debian installs it."""
    path = find_chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Root, as in a container, has no sandbox; /dev/shm is small there.
        arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        yield browser
        browser.close()


@pytest.fixture
def page(studio: RunningStudio, browser: Any) -> Iterator[Any]:
    """A page that is signed in. An error in its console or a foreign request fails the test.

    page.goto_view("text", model="substring", text="abc|c") opens a view. page.faults lists the
    errors so far. A test that causes errors says so: page.expected.append("status of 400").
    """
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.set_default_timeout(MILLISECONDS)
    page.set_default_navigation_timeout(MILLISECONDS)
    page.faults, page.expected = watch_faults(page, studio.address), []

    def goto_view(view: str, **state: Any) -> None:
        # Through about:blank, because a new # alone would not load the page anew.
        page.goto("about:blank")
        page.goto(f"{studio.address}/#{urlencode({'view': view, **state})}")
        page.wait_for_selector(f"[data-view='{view}']")

    page.goto_view = goto_view
    page.goto(studio.url)
    yield page
    context.close()
    # Errors may arrive until the page is closed, so the expected ones are left out only now.
    faults = [fault for fault in page.faults if not any(word in fault for word in page.expected)]
    assert faults == []


def watch_faults(page: Any, address: str) -> list[str]:
    """A list that gets every error in the console, failed request and request to elsewhere."""
    faults: list[str] = []

    def check_console(message: Any) -> None:
        if message.type in ("error", "warning"):
            faults.append(f"console: {message.text}")

    def check_request(request: Any) -> None:
        if not request.url.startswith((f"{address}/", "blob:", "data:")):
            faults.append(f"request to elsewhere: {request.url}")

    def check_failure(request: Any) -> None:
        if request.failure != "net::ERR_ABORTED":  # a newer question ends an older one
            faults.append(f"request failed: {request.url}: {request.failure}")

    page.on("console", check_console)
    page.on("pageerror", lambda error: faults.append(f"error: {error}"))
    page.on("request", check_request)
    page.on("requestfailed", check_failure)
    return faults
