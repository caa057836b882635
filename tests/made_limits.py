"""Times of layers and products made for tests: what each takes at a batch size is a function that a test chooses."""

import xarray as xr

from dolb import results
from dolb.profiling import limits
from dolb.profiling.config import LayerConfig

MB = 10**6


def made_network(arch, seconds, sizes, megabytes, seed=0, **changes) -> list[xr.Dataset]:
    """Make the rows of a network by batch size; ``seconds`` gives those of its layers, and of the update, at a size."""
    rows = []
    for size in sizes:
        config = LayerConfig(experiment="limits", arch=arch, batch_size=size, seed=seed, **changes)
        times, now, events, weights = dict(seconds(size)), 0.0, [], []
        update = times.pop("update", 0.0)
        for layer, taken in times.items():
            events.append((0, "forward", f"{layer}.weight", now, now + 1e6 * taken, 0))
            weights.append((0, "backward", f"{layer}.weight", now, now, megabytes * MB // len(times)))
            now += 1e6 * taken
        events += [*weights[::-1], (0, "update", "update", now, now + 1e6 * update, 0)]
        values = {"step_seconds": now / 1e6 + update, "parameters": megabytes * MB // 4}
        rows.append(limits.to_dataset(config, values, events, "a machine"))
    return rows


def made_product(arch, product, seconds, sizes, seed=0, flops=1e11, bandwidth=1e10) -> list[xr.Dataset]:
    """Make the rows of a product of 1000 x 1000 weights by inputs; ``seconds`` gives its time at a number of them."""
    rows = []
    for size in sizes:
        config = LayerConfig(experiment="limits", arch=arch, product=product, batch_size=size, seed=seed)
        values = {
            "step_seconds": seconds(size), "parameters": MB, "step_flops": 2.0 * MB * size,
            "step_bytes": 4.0 * (MB + 2000 * size), "peak_flops": flops, "peak_bandwidth": bandwidth,
        }  # fmt: skip
        event = (0, "forward", product, 0.0, 1e6 * seconds(size), 4 * MB)
        rows.append(limits.to_dataset(config, values, [event], "a machine"))
    return rows


POWERS = [2**power for power in range(9)]


def made_study(alexnet, googlenet, seeds=(0, 1), product=lambda size: 1e-3 + 1e-5 * size) -> xr.Dataset:
    """Make the study's two networks and one product of several seeds, with what links make of them, simulated."""
    rows = []
    for seed in seeds:
        slower = 1 + 0.01 * seed
        for arch, seconds, sizes, size in (
            ("alexnet", alexnet, POWERS, 250),
            ("googlenet", googlenet, POWERS[:7], 50),
        ):
            rows += made_network(arch, _slower(seconds, slower), sizes, size, seed)
        rows += made_product("alexnet", "classifier.1", product, (1, 8, 256), seed)
    return limits.with_simulated(results.merge(rows))


def _slower(seconds, factor):
    return lambda batch: {layer: factor * taken for layer, taken in seconds(batch).items()}
