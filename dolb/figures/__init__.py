"""Figures: a table in, an altair chart out; no computing, no reading.

Each experiment's figures are a module here; what they share is in ``style``. All are called by ``dolb.figures.NAME``.
"""

from dolb.figures.batch_size import (
    accuracy_by_batch_size,
    accuracy_by_share,
    accuracy_by_updates,
    preferred_batch_size,
    recommendation,
)
from dolb.figures.benchmarks import engine_speed, step_speed
from dolb.figures.fidelity import paths
from dolb.figures.filtered import accuracy_by_decay, accuracy_by_rate, accuracy_by_set, gains
from dolb.figures.landscape import curvature_ratios, loss_surfaces
from dolb.figures.links import by_bandwidth
from dolb.figures.noise import (
    maps,
    noise_by_eps,
    noise_by_extractor,
    noise_by_map,
    noise_by_parameter,
    noise_costs,
    noise_rounds,
    noise_shared,
    noise_stability,
)
from dolb.figures.scaling import (
    ablation,
    measured_scaling,
    side_by_side,
    simulated_scaling,
    tuning,
    validation,
)
from dolb.figures.step_timeline import step_timeline
from dolb.figures.style import COLOURS, REPORTED, batch_size_axis

__all__ = [
    "COLOURS",
    "REPORTED",
    "ablation",
    "accuracy_by_batch_size",
    "accuracy_by_decay",
    "accuracy_by_rate",
    "accuracy_by_set",
    "accuracy_by_share",
    "accuracy_by_updates",
    "batch_size_axis",
    "by_bandwidth",
    "curvature_ratios",
    "engine_speed",
    "gains",
    "loss_surfaces",
    "maps",
    "measured_scaling",
    "noise_by_eps",
    "noise_by_extractor",
    "noise_by_map",
    "noise_by_parameter",
    "noise_costs",
    "noise_rounds",
    "noise_shared",
    "noise_stability",
    "paths",
    "preferred_batch_size",
    "recommendation",
    "side_by_side",
    "simulated_scaling",
    "step_speed",
    "step_timeline",
    "tuning",
    "validation",
]
