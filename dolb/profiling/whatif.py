"""The simulator as a panel of the book: its constants as data, and the HTML in which book/_static/whatif.js answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from dolb.profiling import network, tensors
from dolb.profiling.policy import DDP, Horovod, Policy, horovod
from dolb.profiling.simulate import EULER, SOURCE

ARCHS = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")
MACHINES = ("summit", "dgx1", "roce25")
VERSIONS = ("0.20", "0.21")


def policy_data(policy: Policy) -> dict[str, Any]:
    """Return a policy as the page's script takes it."""
    return {"kind": "ddp" if isinstance(policy, DDP) else "horovod", **asdict(policy)}


def whatif_data(archs: Sequence[str] = ARCHS) -> dict[str, Any]:
    """Return everything that the panel knows: networks layer by layer, machines, libraries, constants, defaults."""
    policies: list[Policy] = [DDP(), *(horovod(version) for version in VERSIONS)]
    return {
        "source": SOURCE,
        "models": {arch: _model(arch) for arch in archs},
        "networks": {name: asdict(network.preset(name)) for name in MACHINES},
        "policies": {policy.name: policy_data(policy) for policy in policies},
        "constants": {"forward_share": tensors.FORWARD_SHARE, "euler": EULER, "phases": Horovod().phases},
        "most_ranks": [96, 1536, 6144, 27648],
        "defaults": {
            "model": tensors.REFERENCE if tensors.REFERENCE in archs else archs[0],
            "network": MACHINES[0],
            "ddp": policies[0].name,
            "horovod": policies[1].name,
            "batch_per_rank": 32,
            "jitter": 0.01,
            "most_ranks": 6144,
        },
    }


def _model(arch: str) -> dict[str, Any]:
    table = tensors.work(arch)
    return {
        "bytes": table["bytes"].tolist(),
        "macs": table["macs"].tolist(),
        "images_per_second": tensors.v100_images_per_second(arch),
    }


def whatif_html(data: Mapping[str, Any], static: str = "../_static", identifier: str = "dolb-whatif") -> str:
    """Return the panel as HTML: its data, the script at ``static``, and a text for pages without JavaScript."""
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")  # no tag can end the script early
    return f"""<figure class="dolb-figure dolb-whatif" id="{identifier}" aria-label="What if: simulated efficiency">
<p>Simulated efficiency of DDP and Horovod; the controls need JavaScript.</p>
</figure>
<script type="application/json" id="{identifier}-data">{text}</script>
<script src="{static}/whatif.js"></script>
<script>
dolbWhatif.build(document.getElementById("{identifier}"),
  JSON.parse(document.getElementById("{identifier}-data").textContent));
</script>
"""
