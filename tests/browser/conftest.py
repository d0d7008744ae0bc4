"""A browser without a window: Selenium with Debian's chromium. Without them the tests are skipped,
and one line says how to get them.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HOW = (
    "the tests in the browser need: apt-get install chromium chromium-driver && pip install"
    " selenium"
)
REQUIRED = os.environ.get("KSOS_BROWSER") == "required"
"""Whether it is an error if they cannot run."""

SCREENSHOTS = os.environ.get("KSOS_SCREENSHOTS")
"""A folder in which pictures are kept; default: that of the test."""

SWITCHES = [
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-background-networking",
]
SWITCHES += [
    "--disable-component-update",
    "--disable-default-apps",
    "--no-first-run",
    "--disable-sync",
    "--window-size=1400,1000",
]


def found() -> tuple[str, str] | None:
    """Where the browser and its driver are; None if something is missing."""
    try:
        import selenium  # noqa: F401
    except ModuleNotFoundError:
        return None
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    return None if browser is None or driver is None else (browser, driver)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without a browser, one of the tests is skipped in the name of all, so that one line says how
    to get it.
    """
    own = [item for item in items if Path(__file__).parent in item.path.parents]
    if found() is not None or not own:
        return
    if REQUIRED:
        raise pytest.UsageError(HOW)
    own[0].add_marker(pytest.mark.skip(reason=f"{HOW} ({len(own)} tests)"))
    items[:] = [item for item in items if item is own[0] or item not in own]
    config.hook.pytest_deselected(items=own[1:])


class Browser:
    """A driver with the few things that the tests do with it."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, url: str) -> Browser:
        self.driver.get(url)
        return self

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def wait(self, script: str, seconds: float = 60.0) -> Any:
        """Until the expression is true; its value."""
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self.driver, seconds, poll_frequency=0.02).until(
            lambda _: self.run(f"return {script}")
        )

    def settled(self) -> None:
        """Until the last fit is no draft and its slow answers have come."""
        self.wait(
            "document.body.dataset.fits && document.body.dataset.details ==="
            " document.body.dataset.fits"
        )

    def element(self, name: str) -> Any:
        return self.driver.find_element("id", name)

    def text(self, name: str) -> str:
        return str(self.run("return document.getElementById(arguments[0]).textContent", name))

    def value(self, name: str) -> Any:
        """The number behind what an element shows, in full."""
        return json.loads(
            self.run("return document.getElementById(arguments[0]).dataset.value", name)
        )

    def move(self, name: str, value: float) -> None:
        """Move a slider as a hand would, and wait for the fit that follows."""
        fits = int(self.run("return document.body.dataset.fits"))
        script = (
            "const e = document.getElementById(arguments[0]); e.value = arguments[1];"
            " e.dispatchEvent(new Event('input'))"
        )
        self.run(script, name, value)
        self.wait(f"Number(document.body.dataset.fits) > {fits}")

    def choose(self, name: str, value: str) -> None:
        script = (
            "const e = document.getElementById(arguments[0]); e.value = arguments[1];"
            " e.dispatchEvent(new Event('change'))"
        )
        self.run(script, name, value)

    def errors(self) -> list[str]:
        """What the console has heard since it was last asked."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """The addresses that pages have asked for since this was last called, as the browser's
        network log has them.
        """
        messages = [
            json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")
        ]
        return [
            message["params"]["request"]["url"]
            for message in messages
            if message["method"] == "Network.requestWillBeSent"
        ]

    def hosts(self) -> set[str]:
        """Every host that they have asked."""
        return {
            address.split("/")[2] if "://" in address else address.partition(":")[0]
            for address in self.requests()
        }

    def emulate(self, *, width: int = 1400, height: int = 1000, dark: bool = False) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})

    def screenshot(self, path: Path) -> Path:
        if SCREENSHOTS is not None:
            path = Path(SCREENSHOTS) / path.name
            path.parent.mkdir(parents=True, exist_ok=True)
        assert self.driver.save_screenshot(str(path))
        return path


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Browser]]:
    """Starts browsers, and ends them all."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    browser, driver = found() or ("", "")
    started = []

    def new() -> Browser:
        options = webdriver.ChromeOptions()
        options.binary_location = browser
        for switch in SWITCHES:
            options.add_argument(switch)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        options.add_experimental_option(
            "prefs", {"download.default_directory": str(tmp_path_factory.mktemp("downloads"))}
        )
        started.append(webdriver.Chrome(options=options, service=Service(driver)))
        return Browser(started[-1])

    yield new
    for one in started:
        one.quit()


@pytest.fixture(scope="module")
def browser(start: Callable[[], Browser]) -> Browser:
    return start()
