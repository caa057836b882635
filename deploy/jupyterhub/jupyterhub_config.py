"""A hub for the accounts of this machine: `make hub` starts it, the book's page *On a hub* explains it.

The environment says what differs from site to site; every name is read here and nowhere else.
"""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from jupyterhub.traitlets import ByteSpecification

from dolb import results

c: Any = get_config()  # type: ignore[name-defined]  # noqa: F821  # JupyterHub brings it

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BIN = Path(sys.prefix) / "bin"
STATE = Path(os.environ.get("DOLB_HUB_STATE") or "/var/lib/dolb-hub").resolve()
USERS = set(os.environ.get("DOLB_HUB_USERS", "").replace(",", " ").split())
if not USERS:
    sys.exit("Say who may log in, by the names of their accounts: DOLB_HUB_USERS='ada grace' make hub")
if STATE.is_relative_to(ROOT):
    sys.exit(f"DOLB_HUB_STATE is {STATE}, inside the checkout: secrets belong outside of it")
for needed in (ROOT, Path(sys.prefix), Path(sys.executable).resolve()):
    if closed := [path for path in (needed, *needed.parents) if not path.stat().st_mode & 0o001]:
        sys.exit(
            f"every user needs {needed}, but {closed[-1]} is closed to them: move the checkout, or make .venv with the "
            "system's Python, `rm -r .venv; make env BASE_PYTHON=/usr/bin/python3`"
        )

# Cookie secret and database: made at the first start, for root alone.
STATE.mkdir(parents=True, exist_ok=True)
STATE.chmod(0o700)
database = STATE / "jupyterhub.sqlite"
os.close(os.open(database, os.O_CREAT | os.O_RDWR, 0o600))
c.JupyterHub.db_url = f"sqlite:///{database}"
c.JupyterHub.cookie_secret_file = str(STATE / "cookie-secret")

# Who: the accounts of this machine, with their own passwords, and of these only the ones that are named.
c.JupyterHub.authenticator_class = "pam"
c.PAMAuthenticator.open_sessions = False
c.Authenticator.allowed_users = USERS
c.Authenticator.admin_users = set(os.environ.get("DOLB_HUB_ADMINS", "").replace(",", " ").split())

# Where: on loopback, for an SSH tunnel or a web server of the site in front of it.
c.JupyterHub.bind_url = os.environ.get("DOLB_HUB_URL") or "http://127.0.0.1:8000"
proxy = shutil.which("configurable-http-proxy", path=f"{HERE}/node_modules/.bin:{os.environ['PATH']}")
c.ConfigurableHTTPProxy.command = proxy or sys.exit("The hub's proxy is missing: `make hub` installs it")
c.ConfigurableHTTPProxy.pid_file = str(STATE / "proxy.pid")
# Before anybody reaches it over a network without such a server, as passwords cross it (and https in DOLB_HUB_URL):
# c.JupyterHub.ssl_cert, c.JupyterHub.ssl_key = "/etc/ssl/hub.pem", "/etc/ssl/private/hub.key"

# What a user gets: JupyterLab as that user, at home, with the notebooks pulled; edits stay, and what is new is merged.
c.JupyterHub.spawner_class = "jupyterhub.spawner.LocalProcessSpawner"
c.Spawner.cmd = [str(HERE / "user-server"), "python", "-m", "jupyterhub.singleuser"]
c.Spawner.notebook_dir = "~"
c.Spawner.default_url = "/lab/tree/dolb/notebooks"
c.Spawner.http_timeout = c.Spawner.start_timeout = 120
# Memory of each process, which `user-server` sets; where one is over it, that process fails and not the machine. With
# systemd, SystemdSpawner (`pip install jupyterhub-systemdspawner`) holds all processes of a user to it together:
# c.JupyterHub.spawner_class = "systemd"
# Read here, so that a mistake in it stops the hub and not a login.
c.Spawner.mem_limit = ByteSpecification().validate(None, os.environ.get("DOLB_HUB_MEMORY") or "8G")


def store_of(spawner: Any) -> str:
    """Return the folder of a user's finished runs: one that all share, or one at home."""
    return os.environ.get("DOLB_STORE") or os.path.expanduser(f"~{spawner.user.name}/dolb-store")


c.Spawner.environment = {
    "PATH": f"{BIN}:{os.environ['PATH']}",
    "JUPYTER_CONFIG_PATH": str(HERE),  # labconfig/: JupyterLab neither fetches news nor asks whether it may
    "DOLB_STORE": store_of,
    "DOLB_COMMIT": results.commit(),  # git tells it to the owner of the checkout alone
    "DOLB_HUB_REPOSITORY": os.environ.get("DOLB_HUB_REPOSITORY") or f"file://{ROOT}",
    "DOLB_HUB_BRANCH": os.environ.get("DOLB_HUB_BRANCH") or "main",
    **{name: os.environ[name] for name in ("DOLB_DATA", "DOLB_RESULTS") if os.environ.get(name)},
}

# Where more people log in than the memory holds servers, end those that nobody has used for so many seconds.
if idle := os.environ.get("DOLB_HUB_IDLE"):
    scopes = ["list:users", "read:users:activity", "read:servers", "delete:servers"]
    culler = [sys.executable, "-m", "jupyterhub_idle_culler", f"--timeout={idle}"]
    c.JupyterHub.load_roles = [{"name": "culler", "scopes": scopes, "services": ["culler"]}]
    c.JupyterHub.services = [{"name": "culler", "command": culler}]
