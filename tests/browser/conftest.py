"""The built book, and a Chromium without a network to open it in."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import xarray as xr
import yaml
from chromium import CHROMIUM, DRIVER, Browser
from viewing import made_points

from dolb.publishing import build_book


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
