"""How a network would scale on a cluster of one's own, from the speed of one GPU: a table of simulated steps.

from dolb.profiling.simulator.network import cluster
from dolb.profiling.simulator.predict import predict
over = cluster(gpus=8, gbit=100)
predict(my_network, 64, over, nodes=[1, 2, 4, 8, 16], images_per_second=1200)
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from torch import nn

from dolb.profiling.simulator import tensors
from dolb.profiling.simulator.curves import MIDDLE, draw
from dolb.profiling.simulator.libraries import DDP, Policy
from dolb.profiling.simulator.network import Network, require
from dolb.profiling.simulator.step import SOURCE, Scenario, simulate, whole

DRAWS = 32


def predict(
    network: nn.Module | str,
    batch: int,
    over: Network,
    nodes: Sequence[int],
    library: Policy | None = None,
    images_per_second: float | None = None,
    gpu: str = "H200",
    precision: str = "fp32",
    image: tuple[int, ...] | torch.Tensor = (3, tensors.IMAGE_SIZE, tensors.IMAGE_SIZE),
) -> pd.DataFrame:
    """Simulate training with ``batch`` images on every GPU of so many nodes; a row for each number of nodes.

    Parameters
    ----------
    network
        Any module, or the name of one of ours or of torchvision's.
    images_per_second
        Of one GPU. For a network by name it may be left out, where it is known for ``gpu`` and ``precision``.
    image
        What a module is fed: the shape without the batch, or a batch of examples, such as of tokens.
    """
    scenario = Scenario(_step(network, batch, images_per_second, gpu, precision, image), over, library or DDP(), batch)
    ranks = [whole("nodes", count) * over.ranks_per_node for count in nodes]
    low, high = np.quantile(draw({"": scenario}, ranks, DRAWS)[""], MIDDLE, axis=0)
    steps = [simulate(scenario, count) for count in ranks]
    return pd.DataFrame(
        {
            "nodes": list(nodes),
            "gpus": ranks,
            "images_per_second": [step.images_per_second for step in steps],
            "efficiency": [step.efficiency for step in steps],
            "efficiency_low": low,
            "efficiency_high": high,
            "step_ms": [1000 * step.step_seconds for step in steps],
            "communication_ms": [1000 * step.communication_seconds for step in steps],
            "messages": [step.messages for step in steps],
            "variant": scenario.policy.name,
            "source": SOURCE,
        }
    )


def _step(
    network: nn.Module | str,
    batch: int,
    images_per_second: float | None,
    gpu: str,
    precision: str,
    image: tuple[int, ...] | torch.Tensor,
) -> tensors.Tensors:
    if images_per_second is None:
        if isinstance(network, nn.Module):
            raise ValueError("how fast one GPU trains this network is not known; give images_per_second")
        return tensors.on_gpu(network, batch, gpu, precision)
    require("images_per_second", images_per_second, least=1e-9, most=1e12)
    if isinstance(network, str):
        return tensors.at_speed(network, batch, images_per_second)
    return tensors.by_multiplications(tensors.count(network, image), batch / images_per_second)
