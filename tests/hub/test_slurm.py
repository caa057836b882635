"""What a user of the hub of `make hub CONFIG=slurm` meets: a server that is a job of a real Slurm."""

import json
from pathlib import Path

import pytest
import requests
from entering import log_in
from waiting import wait_until


@pytest.fixture(scope="module")
def partition(running_slurm):
    return running_slurm.partition()


@pytest.fixture(scope="module")
def slurm_hub(hub_of, partition, tmp_path_factory):
    site = tmp_path_factory.mktemp("site") / "site.yml"
    gets = {"memory_gb": 2, "minutes": 7, "cpus": 2, "gpus": 1, "options": {"comment": "a test"}}
    site.write_text(json.dumps({"partition": partition, **gets}))  # which is YAML too
    here = "--SlurmSpawner.state_exechost_exp=127.0.0.1"  # nodes of this Slurm have names that no other program knows
    with hub_of("jupyterhub_config_slurm", here, DOLB_SITE=str(site), DOLB_HUB_ADDRESS="127.0.0.1") as hub:
        yield hub


@pytest.mark.slow
def test_a_users_server_is_a_job_of_that_user_until_it_is_stopped(slurm_hub, running_slurm, partition, tmp_path):
    user, url = slurm_hub.users[1], slurm_hub.url
    session, _ = log_in(slurm_hub, user)
    session.get(f"{url}/hub/spawn/{user.name}", timeout=60)

    def lab():
        return session.get(f"{url}/user/{user.name}/lab", timeout=60).text

    wait_until(lambda: f'"hubUser": "{user.name}"' in lab(), 100, "the start of JupyterLab", every=0.5)
    job, *got = running_slurm.ask("squeue", "-hp", partition, "-o", "%i %u %T %C %m %l %b %k").split(maxsplit=7)
    assert got == [user.name, "RUNNING", "2", "2G", "7:00", "gres:gpu:1", "a test"]
    processes = running_slurm.processes(job)
    assert {Path(f"/proc/{one}").owner() for one in processes} == {user.name}

    # The server tells the hub its port. What else it tells must not become what the hub, as root, runs to end the job.
    told = {"port": 1, "exec_prefix": f"touch {tmp_path}/told;"}
    token = {"Authorization": f"token {environment(processes[0])['JUPYTERHUB_API_TOKEN']}"}
    assert requests.post(f"{url}/hub/api/batchspawner", json=told, headers=token, timeout=60).ok

    allowed = {"X-XSRFToken": session.cookies.get("_xsrf", path="/hub/")}
    assert session.delete(f"{url}/hub/api/users/{user.name}/server", headers=allowed, timeout=60).ok
    wait_until(lambda: not running_slurm.queue(partition), what="the end of the job", every=0.3)
    wait_until(lambda: not running_slurm.processes(job), what="the end of its processes", every=0.3)
    assert not list(tmp_path.iterdir())


def environment(process):
    settings = Path(f"/proc/{process}/environ").read_bytes().decode().split("\0")
    return dict(setting.split("=", 1) for setting in settings if setting)
