"""Measurements made for tests: rows as `dolb.profiling.ranks` measures them, with throughputs that a test chooses."""

import itertools
from functools import cache

import numpy as np
import xarray as xr

from dolb import results
from dolb.profiling.config import ScalingConfig
from dolb.profiling.ranks import sweep
from dolb.profiling.simulator import curves


def made_measurement(images_per_second=100.0, device="a machine", link=None, alone=None, **changes) -> xr.Dataset:
    """Make the row of one measurement.

    ``link`` is what its links were measured to do, Mbit/s and seconds; ``alone`` what one rank did without a library,
    images a second before and after.
    """
    config = ScalingConfig(**{"experiment": "ddp-vs-horovod", "steps": 1, "warmup_steps": 0} | changes)
    values = {
        **config.as_dict(),
        "batch_size": config.batch_size,
        "key": config.key,
        "images_per_second": images_per_second,
        "step_seconds": config.batch_size / images_per_second,
        "parameters": 1000,
        **results.provenance(torch_version="2", device=device, engine="eager", data_fingerprint="sha256:made"),
        "commit": "made",  # whatever state the checkout is in
    }
    values |= dict(zip(("achieved_mbit", "link_latency_seconds"), link or (), strict=False))
    if alone:
        before, after = alone
        values["alone_images_per_second"] = np.sqrt(before * after)
    row = xr.Dataset({name: ("run", np.array([value])) for name, value in values.items()})
    return row.set_coords([*config.as_dict(), "batch_size", "key"])


def made_measurements(speed, ranks=(1, 2, 4), repeats=3, libraries=("ddp", "horovod"), **changes) -> list[xr.Dataset]:
    """Make a row for every library, number of ranks and repetition, by a function of the three.

    What one rank did without a library is what it did under it, unless ``alone`` is given.
    """

    def row(library, count, repeat):
        one = speed(library, 1, repeat)
        about = {"alone": (one, one), "library": library, "ranks": count, "repeat": repeat}
        return made_measurement(speed(library, count, repeat), **about | changes)

    return [row(library, count, repeat) for repeat in range(repeats) for library in libraries for count in ranks]


def made_linked(speed, hosts=(2,), rates=(100.0, np.inf), repeats=2, alone=None, **changes) -> list[xr.Dataset]:
    """Make a row for every library, number of hosts, rate and repetition, and for one rank alone.

    ``speed`` is a function of library, hosts, rate and repetition. Links do nine tenths of their rate, and 20 Gbit/s
    where they are not limited, with 25 microseconds of latency. ``alone`` is a function of rate and repetition: images
    a second, before and after, of one rank without a library.
    """
    rows = []
    for library, repeat in itertools.product(("ddp", "horovod"), range(repeats)):
        same = {"library": library, "repeat": repeat, **changes}
        one = speed(library, 1, np.inf, repeat)
        rows.append(made_measurement(one, alone=(one, one), **same))
        for count, rate in itertools.product(hosts, rates):
            link = (0.9 * rate if np.isfinite(rate) else 20_000.0, 25e-6)
            made = speed(library, count, rate, repeat)
            one = alone(rate, repeat) if alone else (speed(library, 1, np.inf, repeat),) * 2
            rows.append(made_measurement(made, link=link, alone=one, ranks=count, hosts=count, link_mbit=rate, **same))
    return rows


@cache
def _simulated() -> xr.Dataset:
    return curves.simulated(points_per_doubling=1, draws=4)


completed = sweep.complete


def small_simulation() -> xr.Dataset:
    """Simulate the curves at every doubling, with a band of a few draws; once, and give each who asks a copy."""
    return _simulated().copy(deep=True)
