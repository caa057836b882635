"""The panel of the book: the same model in JavaScript, and its numbers from one place."""

import itertools
import json
from dataclasses import asdict, replace

import pytest

from dolb.profiling.simulator import network, tensors
from dolb.profiling.simulator.libraries import DDP, MIB, ddp, horovod
from dolb.profiling.simulator.network import GBIT, Link
from dolb.profiling.simulator.step import Scenario, simulate
from dolb.profiling.simulator.whatif import ARCHS, VERSIONS, policy_data, whatif_data, whatif_html

SCRIPT = "book/_static/whatif.js"

SUMMIT = network.preset("summit")
POLICIES = [
    DDP(), DDP(bucket_bytes=1 << 20), horovod("0.20"), horovod("0.21", response_cache=False),
    replace(horovod("0.21"), agreement="ring"),
    replace(horovod("0.20", response_cache=False), blocking=True, cycle_seconds=0.0, fusion_bytes=1 << 22),
]  # fmt: skip
NETWORKS = [
    SUMMIT,
    network.preset("roce25"),
    network.loopback(1e-5, 1e10, 4e9),
]
PLACES = [(2, "resnet18", 8), (33, "resnet50", 32), (1536, "resnet50", 32), (27_000, "resnet101", 64)]


def cases():
    """Every policy on every network, the places in turn: 18 settings; four more of a large network."""
    pairs = itertools.product(POLICIES, NETWORKS)
    for (policy, net), (ranks, arch, batch) in zip(pairs, itertools.cycle([*PLACES, PLACES[2]]), strict=False):
        yield Scenario(tensors.at_speed(arch, batch, 300.0), net, policy, batch), 300.0, arch, ranks
    for policy in POLICIES[1:5]:
        yield Scenario(tensors.at_speed("vgg11", 16, 1148.0), SUMMIT, policy, 16), 1148.0, "vgg11", 384


def settings(scenario, speed, arch, ranks, data):
    return {
        "model": data["models"][arch],
        "images_per_second": speed,
        "batch_per_rank": scenario.batch_per_rank,
        "network": asdict(scenario.network),
        "policy": policy_data(scenario.policy),
        "ranks": ranks,
        "constants": data["constants"],
    }


def agree(answers, steps):
    for answer, step in zip(answers, steps, strict=True):
        for name in ("step_seconds", "images_per_second", "efficiency"):
            assert answer[name] == pytest.approx(getattr(step, name), rel=1e-6)


def test_the_script_gives_what_the_simulator_gives(repo_root, in_javascript):
    data = json.loads(json.dumps(whatif_data()))
    tried = list(cases())
    answers = in_javascript(repo_root / SCRIPT, "api.simulate", [settings(*case, data) for case in tried])
    agree(answers, [simulate(scenario, ranks) for scenario, _, _, ranks in tried])


CONTROLS = {
    "model": "resnet50", "network": "summit", "library": horovod("0.20").name, "response_cache": True,
    "speed": 329, "batch_per_rank": 32, "gpus": 6, "gbit": 200, "latency": 9.6, "bandwidth": 80, "contention": 0.5,
    "interference": 10, "jitter": 1.0, "bucket": 25, "cycle": 5, "fusion": 64, "request": 0.3,
}  # fmt: skip
MOVED = [
    {}, *({"bucket": size} for size in (1, 24, 26, 100)),
    {"model": "resnet18", "batch_per_rank": 8, "network": "roce25", "speed": 900.5},
    {"latency": 25, "bandwidth": 35, "jitter": 0}, {"library": horovod("0.21").name, "cycle": 1, "fusion": 128},
    {"response_cache": False, "request": 0.75, "cycle": 0}, {"gpus": 8, "gbit": 25, "contention": 0, "interference": 0},
]  # fmt: skip


def as_chosen(controls, kind):
    """Return the scenario that the controls of the panel stand for."""
    usual = next(one for one in map(horovod, VERSIONS) if one.name == controls["library"])
    tuned = {"cycle_seconds": controls["cycle"] / 1000, "fusion_bytes": controls["fusion"] * MIB}
    asked = {"request_seconds": controls["request"] * 1e-6, "response_cache": controls["response_cache"]}
    policies = {"ddp": ddp(controls["bucket"] * MIB), "horovod": replace(usual, **tuned, **asked)}
    batch = controls["batch_per_rank"]
    over = replace(
        network.preset(controls["network"]),
        ranks_per_node=controls["gpus"],
        inter=Link(controls["latency"] * 1e-6, controls["gbit"] * GBIT),
        achieved=controls["bandwidth"] / 100,
        **{name: controls[name] / 100 for name in ("jitter", "contention", "interference")},
    )
    return Scenario(tensors.at_speed(controls["model"], batch, controls["speed"]), over, policies[kind], batch)


def test_what_the_controls_say_is_simulated_as_python_does(repo_root, in_javascript):
    data = whatif_data()
    tried = [(CONTROLS | moved, kind) for moved in MOVED for kind in ("ddp", "horovod")]
    answers = in_javascript(
        repo_root / SCRIPT,
        "(one) => api.simulate({ ...api.scenario(one.data, one.controls, one.kind), ranks: 96 })",
        [{"data": data, "controls": controls, "kind": kind} for controls, kind in tried],
    )
    agree(answers, [simulate(as_chosen(controls, kind), 96) for controls, kind in tried])


def test_a_gpu_has_a_speed_only_for_networks_of_which_it_is_known():
    gpus = whatif_data()["gpus"]
    assert set(gpus["H200, fp32"]) == set(ARCHS)
    assert gpus["V100, fp32"] == {"resnet50": 329, "resnet101": 197}


def test_no_text_of_the_data_can_end_its_script_early():
    html = whatif_html({"models": {"</script><b>": 1}})
    assert "</script><b>" not in html
