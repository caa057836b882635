"""What tests in every folder share: the repository's root, and parts of the machine that a test may need."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

RequirePart = Callable[[str, bool, str], None]


@pytest.fixture(scope="session")
def repo_root() -> Path:
    return Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def require_part() -> RequirePart:
    """Skip a test whose part (a browser, a GPU, a Slurm) is missing, or fail it where DOLB_REQUIRE lists that part.

    `DOLB_REQUIRE=browser,slurm` is for machines that are known to have the part: there a skip would hide a fault.
    """

    def require(part: str, available: bool, reason: str) -> None:
        if available:
            return
        required = {name.strip() for name in os.environ.get("DOLB_REQUIRE", "").split(",")}
        if part in required:
            pytest.fail(f"DOLB_REQUIRE lists {part!r}, but {reason}", pytrace=False)
        pytest.skip(f"{part}: {reason}")

    return require
