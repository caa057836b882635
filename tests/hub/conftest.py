"""A real JupyterHub with its proxy on loopback, for accounts that exist while the tests run."""

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import requests
from chromium import CHROMIUM, DRIVER, Browser
from waiting import wait_until

HUB_ENV = Path(os.environ.get("HUB_ENV", "/opt/dolb-hub"))


class Account(NamedTuple):
    """An account of this machine."""

    name: str
    password: str


class Hub(NamedTuple):
    """A running hub: where it is, where its secrets are, and whom it knows."""

    url: str
    state: Path
    users: tuple[Account, Account]
    stranger: Account  # with an account, but not one of the hub's users


def free_ports(n: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.fixture(scope="session")
def accounts(require_part: Any) -> Iterator[list[Account]]:
    """Three accounts with passwords, removed afterwards with all that runs as them."""
    there = os.geteuid() == 0 and shutil.which("useradd") and (HUB_ENV / "bin" / "jupyterhub").exists()
    require_part("hub", bool(there), f"only root can make accounts, or {HUB_ENV} is missing: `make hub-env`")
    made = [Account(f"dolb-{secrets.token_hex(4)}", secrets.token_urlsafe(12)) for _ in range(3)]
    try:
        for name, password in made:
            subprocess.run(["useradd", "--create-home", "--shell", "/bin/bash", name], check=True)
            subprocess.run(["chpasswd"], input=f"{name}:{password}", text=True, check=True)
        yield made
    finally:
        for name, _ in made:
            subprocess.run(["pkill", "-KILL", "-u", name], check=False)
            wait_until(lambda name=name: subprocess.run(["pgrep", "-u", name], capture_output=True).returncode == 1)
            subprocess.run(["userdel", "--remove", name], check=True, capture_output=True)


@pytest.fixture(scope="session")
def notebooks(repo_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The notebooks of this tree as a repository in one file, which every account can read."""
    work = tmp_path_factory.mktemp("repository")
    shutil.copytree(repo_root / "notebooks", work / "notebooks", ignore=shutil.ignore_patterns(".*", "*-files"))
    git = ["git", "-C", str(work), "-c", "user.name=test", "-c", "user.email=test@localhost"]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        bundle = Path(folder) / "notebooks.bundle"
        for command in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "notebooks"]):
            subprocess.run([*git, *command], check=True)
        subprocess.run([*git, "bundle", "create", "-q", str(bundle), "HEAD", "main"], check=True)
        yield bundle


@pytest.fixture(scope="session")
def hub(
    repo_root: Path, accounts: list[Account], notebooks: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Hub]:
    """The hub of `make hub`, on ports of its own."""
    folder = tmp_path_factory.mktemp("hub")
    public, api, proxy = free_ports(3)
    url = f"http://127.0.0.1:{public}"
    site = {
        "DOLB_HUB_USERS": " ".join(name for name, _ in accounts[:2]),
        "DOLB_HUB_STATE": str(folder / "state"),
        "DOLB_HUB_URL": url,
        "DOLB_HUB_REPOSITORY": str(notebooks),
        "DOLB_COMMIT": "0" * 40,
        "PYTHONPATH": str(repo_root),  # the dolb of this tree, wherever the hub's environment has its own
    }
    config = repo_root / "deploy" / "jupyterhub" / "jupyterhub_config.py"
    ports = [
        f"--JupyterHub.hub_bind_url=http://127.0.0.1:{api}",
        f"--ConfigurableHTTPProxy.api_url=http://127.0.0.1:{proxy}",
    ]
    command = [str(HUB_ENV / "bin" / "jupyterhub"), f"--config={config}", *ports]
    with (folder / "hub.log").open("w") as log:
        running = subprocess.Popen(command, cwd=folder, env={**os.environ, **site}, stdout=log, stderr=log)

    def answers() -> bool:
        assert running.poll() is None, (folder / "hub.log").read_text()[-3000:]
        try:
            return requests.get(f"{url}/hub/health", timeout=5).ok
        except requests.ConnectionError:
            return False

    try:
        wait_until(answers, 60)
        yield Hub(url, folder / "state", (accounts[0], accounts[1]), accounts[2])
    finally:
        running.terminate()
        try:
            running.wait(60)
        finally:
            running.kill()
            shutil.copy(folder / "hub.log", os.environ.get("DOLB_HUB_LOG", os.devnull))


@pytest.fixture(scope="session")
def browser(require_part: Any) -> Iterator[Browser]:
    require_part("browser", CHROMIUM is not None and DRIVER is not None, "chromium or chromedriver is not installed")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(profile, loopback=True)
        browser.resize(1440, 1400)
        yield browser
        browser.driver.quit()
