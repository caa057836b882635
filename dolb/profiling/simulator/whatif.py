"""The simulator as a panel of the book: its constants as data, and the HTML in which book/_static/whatif.js answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import xarray as xr

from dolb.profiling.simulator import network, tensors
from dolb.profiling.simulator.curves import FITTED_JITTER
from dolb.profiling.simulator.libraries import DDP, Horovod, Policy, horovod
from dolb.profiling.simulator.step import EULER, SOURCE

ARCHS = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")
MACHINES = ("summit", "dgx1", "roce25")
VERSIONS = ("0.20", "0.21")
PUBLISHED_GPU = "V100 (published)"
BATCH_PER_RANK, IMAGE_SIZE = 32, 224  # of the measurements that the panel offers


def policy_data(policy: Policy) -> dict[str, Any]:
    """Return a policy as the page's script takes it."""
    return {"kind": "ddp" if isinstance(policy, DDP) else "horovod", **asdict(policy)}


def whatif_data(times: xr.Dataset) -> dict[str, Any]:
    """Return everything that the panel knows: networks, GPUs layer by layer, machines, libraries, constants, defaults.

    ``times`` are measured layer times; a GPU is offered where all networks were measured on it.
    """
    policies: list[Policy] = [DDP(), *(horovod(version) for version in VERSIONS)]
    return {
        "source": SOURCE,
        "models": {arch: {"bytes": tensors.work(arch)["bytes"].tolist()} for arch in ARCHS},
        "gpus": {PUBLISHED_GPU: {arch: _published(arch) for arch in ARCHS}, **_measured(times)},
        "networks": {name: asdict(network.preset(name)) for name in MACHINES},
        "policies": {policy.name: policy_data(policy) for policy in policies},
        "constants": {"euler": EULER, "phases": Horovod().phases},
        "most_ranks": [16, 96, 1536, 6144, 27648],
        "defaults": {
            "model": tensors.REFERENCE,
            "gpu": PUBLISHED_GPU,
            "network": MACHINES[0],
            "ddp": policies[0].name,
            "horovod": policies[1].name,
            "batch_per_rank": BATCH_PER_RANK,
            "jitter": FITTED_JITTER,
            "most_ranks": 6144,
        },
    }


def _published(arch: str) -> dict[str, Any]:
    return {
        "images_per_second": tensors.v100_images_per_second(arch),
        "forward_share": tensors.FORWARD_SHARE,
        "backward": tensors.work(arch)["macs"].tolist(),
    }


def _measured(times: xr.Dataset) -> dict[str, dict[str, Any]]:
    """Return the GPUs, in each precision, on which every network of the panel was measured."""
    names = ("device", "precision", "arch", "image_size", "batch_size_per_rank")
    rows = zip(*(times[name].to_numpy().tolist() for name in names), strict=True)
    gpus: dict[str, dict[str, Any]] = {}
    for number, (device, precision, arch, *where) in enumerate(rows):
        if arch in ARCHS and where == [IMAGE_SIZE, BATCH_PER_RANK]:
            step = tensors.from_dataset(tensors.one_measurement(times, number))
            gpus.setdefault(f"{device} (measured, {precision})", {})[arch] = _profile(step)
    return {name: gpus[name] for name in sorted(gpus) if len(gpus[name]) == len(ARCHS)}


def _profile(step: tensors.Tensors) -> dict[str, Any]:
    return {
        "images_per_second": BATCH_PER_RANK / step.compute_seconds,
        "forward_share": float(step.forward_seconds.sum()) / step.compute_seconds,
        "backward": step.backward_seconds.tolist(),
    }


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
