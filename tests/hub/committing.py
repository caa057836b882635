"""Commits in a repository of the tests."""

import subprocess
from pathlib import Path


def commit(work: Path) -> None:
    git = ["git", "-C", str(work), "-c", "user.name=test", "-c", "user.email=test@localhost"]
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "notebooks"], check=True)
