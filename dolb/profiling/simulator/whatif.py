"""The simulator as a panel of the book: its constants as data, and the HTML in which book/_static/whatif.js answers."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from dolb.profiling.simulator import network, tensors
from dolb.profiling.simulator.curves import ARCH, BATCH_PER_RANK
from dolb.profiling.simulator.libraries import DDP, Horovod, Policy, horovod
from dolb.profiling.simulator.step import EULER, SOURCE

ARCHS = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "vgg11")  # whose layers were measured
MACHINES = ("summit", "dgx1", "dgxa100", "roce25")
VERSIONS = ("0.20", "0.21")
PUBLISHED_GPU = "V100, fp32"


def policy_data(policy: Policy) -> dict[str, Any]:
    """Return a policy as the page's script takes it."""
    return {"kind": "ddp" if isinstance(policy, DDP) else "horovod", **asdict(policy)}


def whatif_data() -> dict[str, Any]:
    """Return everything that the panel knows: networks layer by layer, GPUs, machines, libraries, and its defaults."""
    policies: list[Policy] = [DDP(), *(horovod(version) for version in VERSIONS)]
    return {
        "source": SOURCE,
        "models": {arch: _layers(tensors.at_speed(arch, 1, 1.0)) for arch in ARCHS},
        "gpus": _speeds(),
        "networks": {name: asdict(network.preset(name)) for name in MACHINES},
        "policies": {policy.name: policy_data(policy) for policy in policies},
        "constants": {"euler": EULER, "phases": Horovod().phases},
        "most_ranks": [16, 96, 1536, 6144, 27648],
        "defaults": {
            "model": ARCH,
            "gpu": PUBLISHED_GPU,
            "network": MACHINES[0],
            "ddp": policies[0].name,
            "horovod": policies[1].name,
            "batch_per_rank": BATCH_PER_RANK,
            "most_ranks": 6144,
        },
    }


def _layers(step: tensors.Tensors) -> dict[str, Any]:
    return {
        "bytes": step.bytes.tolist(),
        "forward_share": float(step.forward_seconds.sum()) / step.compute_seconds,
        "backward": step.backward_seconds.tolist(),
    }


def _speeds() -> dict[str, dict[str, float]]:
    """Return what GPUs train in a second, by GPU and precision and by network, where that is known."""
    known = tensors.throughputs()
    known = known[known["arch"].isin(ARCHS)].drop_duplicates(["gpu", "precision", "arch"])
    speeds: dict[str, dict[str, float]] = {}
    for gpu, precision, arch in known[["gpu", "precision", "arch"]].to_numpy().tolist():
        speed = tensors.images_per_second(arch, gpu, BATCH_PER_RANK, precision)
        speeds.setdefault(f"{gpu}, {precision}", {})[arch] = speed
    return dict(sorted(speeds.items()))


def whatif_html(data: Mapping[str, Any], static: str = "../_static") -> str:
    """Return the panel as HTML: its data, the script at ``static``, and a text for pages without JavaScript."""
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")  # no tag can end the script early
    return f"""<figure class="dolb-figure dolb-whatif" id="dolb-whatif" aria-label="What if: simulated efficiency">
<p>Simulated efficiency of DDP and Horovod; the controls need JavaScript.</p>
</figure>
<script type="application/json" id="dolb-whatif-data">{text}</script>
<script src="{static}/whatif.js"></script>
<script>
dolbWhatif.build(document.getElementById("dolb-whatif"),
  JSON.parse(document.getElementById("dolb-whatif-data").textContent));
</script>
"""
