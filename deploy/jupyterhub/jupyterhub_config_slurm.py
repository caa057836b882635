"""The hub of jupyterhub_config.py with users' servers as Slurm jobs: `make hub CONFIG=slurm` starts it.

DOLB_SITE names a file like deploy/slurm/site.yml, which says what a job gets. Homes, checkout and .venv must have the
same paths on the hub's machine and on the nodes.
"""

import os
import shlex
import socket
from pathlib import Path
from typing import Any

import batchspawner
from batchspawner.api import BatchSpawnerAPIHandler
from jupyterhub.apihandlers import APIHandler

from dolb.cluster import Site, read_site

c: Any = get_config()  # type: ignore[name-defined]  # noqa: F821  # JupyterHub brings both
load_subconfig(str(Path(__file__).resolve().with_name("jupyterhub_config.py")))  # type: ignore[name-defined]  # noqa: F821

site = read_site(Path(os.environ["DOLB_SITE"])) if os.environ.get("DOLB_SITE") else Site()
options = {"account": site.account, **site.options}
flags = {f"--{name.replace('_', '-')}": value for name, value in options.items() if value is not None}

c.JupyterHub.spawner_class = batchspawner.SlurmSpawner
c.SlurmSpawner.exec_prefix = "runuser -u {username} --"
c.SlurmSpawner.start_timeout = 600  # it may wait in the queue
c.SlurmSpawner.req_partition = site.partition or ""
c.SlurmSpawner.req_runtime = str(site.minutes)
c.SlurmSpawner.req_nprocs = str(site.cpus)
# Since Slurm 22.05 a step no longer has these cores from its job.
c.SlurmSpawner.req_srun = f"srun --cpus-per-task={site.cpus}"
c.SlurmSpawner.req_gres = f"gpu:{site.gpus}" if site.gpus else ""
c.SlurmSpawner.req_prologue = "\n".join(site.setup)
c.SlurmSpawner.req_options = " ".join(
    flag if value is True else f"{flag}={shlex.quote(str(value))}" for flag, value in flags.items()
)
if site.memory_gb:
    c.SlurmSpawner.req_memory = f"{site.memory_gb}G"
    c.Spawner.mem_limit = site.memory_gb << 30
if os.environ.get("SLURM_CONF"):
    c.Spawner.environment["SLURM_CONF"] = os.environ["SLURM_CONF"]

# Where nodes reach the hub: on the cluster's own network, as tokens cross it. A server tells the hub its port.
c.JupyterHub.hub_ip = os.environ.get("DOLB_HUB_ADDRESS") or socket.gethostname()
c.SlurmSpawner.batchspawner_singleuser_cmd = f"{c.Spawner.cmd[0]} python -m batchspawner.singleuser"
c.Spawner.cmd = ["jupyterhub-singleuser"]


def port_alone(handler: APIHandler) -> dict[str, int]:
    """Return the port that a server tells. BatchSpawner 1.3 would take all else too, even commands that root runs."""
    return {"port": int(APIHandler.get_json_body(handler)["port"])}


BatchSpawnerAPIHandler.get_json_body = port_alone
