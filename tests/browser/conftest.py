"""The built book, and a Chromium without a network to open it in."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import xarray as xr
import yaml
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from viewing import made_points

from dolb.publishing import build_book

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
# The resolver rule and the flags that keep the browser itself quiet leave only the page's own requests to be seen.
FLAGS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1300,1000",
    "--host-resolver-rules=MAP * ~NOTFOUND", "--enable-unsafe-swiftshader",  # WebGL without a graphics card
]  # fmt: skip


class Browser:
    """Chromium, and what a page opened in it asked for and complained about."""

    def __init__(self, profile: str) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM or ""
        for flag in [*FLAGS, f"--user-data-dir={profile}"]:
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(DRIVER))
        offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
        self.driver.execute_cdp_cmd("Network.enable", {})
        self.driver.execute_cdp_cmd("Network.emulateNetworkConditions", offline)

    def open(self, page: Path, query: str = "") -> None:
        self.driver.get("about:blank")
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        self.driver.get(page.resolve().as_uri() + query)

    def resize(self, width: int, height: int) -> None:
        """Make the page this wide and high; a window cannot be as narrow as a telephone."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def requests(self) -> list[str]:
        """Return every address asked for since the last call."""
        messages: list[dict[str, Any]] = [
            json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")
        ]
        return [
            message["params"]["request"]["url"]
            for message in messages
            if message["method"] == "Network.requestWillBeSent"
        ]

    def errors(self) -> list[str]:
        """Return the console's errors since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]


def toc_pages(root: Path) -> list[str]:
    """List the pages of `_toc.yml`, in order, whatever its nesting."""

    def walk(node: Any) -> Iterator[str]:
        if isinstance(node, dict):
            yield from (node[key] for key in ("root", "file") if key in node)
            for value in node.values():
                yield from walk(value)
        elif isinstance(node, list):
            for item in node:
                yield from walk(item)

    return list(walk(yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes `page` once for every page of the book; all tests of a page before those of the next."""
    if "page" in metafunc.fixturenames:
        metafunc.parametrize("page", toc_pages(Path(__file__).resolve().parents[2]), scope="module")


@pytest.fixture(scope="session")
def book(repo_root: Path, require_part: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the book's pages: the one that DOLB_BOOK names, or one built now."""
    require_part("browser", CHROMIUM is not None and DRIVER is not None, "chromium or chromedriver is not installed")
    if "DOLB_BOOK" in os.environ:
        return Path(os.environ["DOLB_BOOK"])
    return build_book(repo_root, output=tmp_path_factory.mktemp("book") / "html").parent


@pytest.fixture(scope="session")
def browser(require_part: Any) -> Iterator[Browser]:
    require_part("browser", CHROMIUM is not None and DRIVER is not None, "chromium or chromedriver is not installed")
    # A fresh profile: no cache and no stored theme can stand in for what a first visit needs.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(profile)
        yield browser
        browser.driver.quit()


@pytest.fixture(scope="session")
def made() -> xr.Dataset:
    """As many points as CIFAR-10 has, on a made-up map, with a mask."""
    return made_points()
