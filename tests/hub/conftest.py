"""A real JupyterHub with its proxy on loopback, for accounts that exist while the tests run."""

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import requests
from chromium import CHROMIUM, DRIVER, Browser
from committing import commit
from waiting import wait_until

PREFIX = "dolb-test-"  # of the names of accounts; after it comes the number of the process that made them
# What ends the tests, be it a kill, closes this program's input; it ends what runs as the accounts and removes them.
REMOVE = """
read -r _
for name; do
  id "$name" >/dev/null 2>&1 || continue
  for _ in $(seq 100); do pkill -KILL -u "$name" || break; sleep 0.05; done
  userdel --force --remove "$name" 2>/dev/null
done
rm -rf "$FOLDER"
"""


class Account(NamedTuple):
    """An account of this machine."""

    name: str
    password: str
    home: Path


class Hub(NamedTuple):
    """A running hub: where it is, where its secrets are, and whom it knows."""

    url: str
    state: Path
    users: tuple[Account, Account]
    stranger: Account  # with an account, but not one of the hub's users
    repository: Path
    process: subprocess.Popen[bytes]


def free_ports(n: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(n)]
        return [one.getsockname()[1] for one in sockets]


def remover(names: list[str], folder: str = "") -> subprocess.Popen[bytes]:
    """Start what removes accounts and a folder once its input is closed."""
    # Without SLURM_CONF, by which a Slurm of the tests ends what it finds.
    command, env = ["sh", "-c", REMOVE, "sh", *names], {"PATH": os.environ["PATH"], "FOLDER": folder}
    return subprocess.Popen(command, stdin=subprocess.PIPE, env=env, start_new_session=True)


def left_behind() -> list[str]:
    """Return the accounts of tests that are over, as when the machine lost its power in the midst of them."""
    lines = Path("/etc/passwd").read_text().splitlines()
    names = [line.split(":")[0] for line in lines if line.startswith(PREFIX)]
    return [name for name in names if not Path(f"/proc/{name.split('-')[2]}").exists()]


def can(name: str, *command: str) -> bool:
    """Whether an account can run a command."""
    return subprocess.run(["runuser", "-u", name, "--", *command], capture_output=True, cwd="/").returncode == 0


@pytest.fixture(scope="session")
def folder(repo_root: Path, require_part: Any) -> Iterator[Path]:
    """A folder that every account can read, and that goes with the accounts."""
    proxy = repo_root / "deploy" / "jupyterhub" / "node_modules" / ".bin" / "configurable-http-proxy"
    require_part("hub", os.geteuid() == 0 and bool(shutil.which("useradd")), "only root can make accounts")
    require_part("hub", proxy.exists(), "its proxy is not installed: `make proxy`")
    remover(left_behind()).communicate()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    names = [f"{PREFIX}{os.getpid()}-{number}" for number in range(3)]
    guard = remover(names, str(folder))
    try:
        folder.chmod(0o755)
        yield folder
    finally:
        guard.communicate()
    assert not [name for name in names if name in Path("/etc/passwd").read_text()]


@pytest.fixture(scope="session")
def accounts(folder: Path) -> list[Account]:
    """Three accounts with passwords."""
    names = [f"{PREFIX}{os.getpid()}-{number}" for number in range(3)]
    made = [Account(name, secrets.token_urlsafe(12), folder / name) for name in names]
    for name, password, home in made:
        subprocess.run(["useradd", "--create-home", "--home-dir", home, "--shell", "/bin/bash", name], check=True)
        home.chmod(0o700)
        subprocess.run(["chpasswd"], input=f"{name}:{password}", text=True, check=True)
    return made


@pytest.fixture(scope="session")
def python(repo_root: Path, folder: Path, accounts: list[Account], require_part: Any) -> Path:
    """An interpreter with the packages of this one, which every account can run."""
    if not can(accounts[0].name, sys.executable, "-c", ""):
        # It lies at root's home, say. The system's, with links to these packages, serves if it is of the same version.
        subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", folder / "venv"], check=True)
        packages = Path("lib", f"python3.{sys.version_info.minor}", "site-packages")
        for name in (packages, "share", "etc"):
            shutil.rmtree(folder / "venv" / name, ignore_errors=True)
            (folder / "venv" / name).parent.mkdir(parents=True, exist_ok=True)  # of another version there is none
            (folder / "venv" / name).symlink_to(Path(sys.prefix, name))
        (folder / "venv/bin/jupyterhub-singleuser").symlink_to(Path(sys.prefix, "bin/jupyterhub-singleuser"))
    python = Path(sys.executable) if can(accounts[0].name, sys.executable, "-c", "") else folder / "venv/bin/python"
    runs = can(accounts[0].name, str(python), "-c", f"import jupyterhub; open({str(repo_root / 'Makefile')!r})")
    require_part(
        "hub", runs, "other users cannot read this checkout, or run its interpreter or the system's with its packages"
    )
    return python


@pytest.fixture(scope="session")
def repository(repo_root: Path, folder: Path) -> Path:
    """A repository with the notebooks of this tree, which belongs to root."""
    work = folder / "repository"
    shutil.copytree(repo_root / "notebooks", work / "notebooks", ignore=shutil.ignore_patterns(".*", "*-files"))
    subprocess.run(["git", "init", "-q", "-b", "main", work], check=True)
    commit(work)
    return work


@pytest.fixture(scope="session")
def hub_of(
    repo_root: Path, folder: Path, accounts: list[Account], python: Path, repository: Path
) -> Callable[..., contextlib.AbstractContextManager[Hub]]:
    """Run the hub of a config, on ports of its own."""

    @contextlib.contextmanager
    def run(config: str, *options: str, **settings: str) -> Iterator[Hub]:
        public, api, proxy = free_ports(3)
        url, state, log = f"http://127.0.0.1:{public}", folder / f"{config}-state", folder / f"{config}.log"
        site = {
            "DOLB_HUB_USERS": " ".join(account.name for account in accounts[:2]),
            "DOLB_HUB_STATE": str(state),
            "DOLB_HUB_URL": url,
            "DOLB_HUB_REPOSITORY": f"file://{repository}",
            "DOLB_HUB_MEMORY": "6G",
            "DOLB_HUB_IDLE": "3600",
            "PYTHONPATH": str(repo_root),  # the dolb of this tree, wherever its environment has another
        }
        path = repo_root / "deploy" / "jupyterhub" / f"{config}.py"
        ports = [f"--JupyterHub.hub_port={api}", f"--ConfigurableHTTPProxy.api_url=http://127.0.0.1:{proxy}"]
        # It ends, with its proxy, when the tests do, however that is.
        command = ["setpriv", "--pdeathsig=TERM", python, "-m", "jupyterhub", f"--config={path}", *ports, *options]
        with log.open("w") as out:
            running = subprocess.Popen(
                command, cwd=folder, env={**os.environ, **site, **settings}, stdout=out, stderr=out
            )

        def answers() -> bool:
            assert running.poll() is None, log.read_text()[-3000:]
            with contextlib.suppress(requests.ConnectionError):
                return requests.get(f"{url}/hub/health", timeout=5).ok
            return False

        try:
            wait_until(answers, 60, "the start of the hub", every=0.1)
            yield Hub(url, state, (accounts[0], accounts[1]), accounts[2], repository, running)
        finally:
            running.terminate()
            try:
                running.wait(60)
            finally:
                running.kill()
                if os.environ.get("DOLB_HUB_LOG"):
                    shutil.copy(log, os.environ["DOLB_HUB_LOG"])

    return run


@pytest.fixture(scope="session")
def hub(hub_of: Callable[..., contextlib.AbstractContextManager[Hub]]) -> Iterator[Hub]:
    """The hub of `make hub`."""
    with hub_of("jupyterhub_config") as hub:
        yield hub


@pytest.fixture(scope="session")
def browser(require_part: Any) -> Iterator[Browser]:
    require_part("browser", CHROMIUM is not None and DRIVER is not None, "chromium or chromedriver is not installed")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(profile, loopback=True)
        browser.resize(1440, 1400)
        yield browser
        browser.driver.quit()
