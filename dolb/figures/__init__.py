"""Figures: a table in, an altair chart out; no computing, no reading.

Each experiment's figures are a module here; what they share is in ``style``. Those on batch size, filtering, landscapes
and learning rates are called by ``dolb.figures.NAME``, the others by their module.
"""

from dolb.figures.batch_size import (
    accuracy_by_batch_size,
    accuracy_by_share,
    accuracy_by_updates,
    preferred_batch_size,
    recommendation,
)
from dolb.figures.critical_batch import noise_scales, updates_by_examples
from dolb.figures.filtered import accuracy_by_decay, accuracy_by_rate, accuracy_by_set, gains
from dolb.figures.landscape import curvature_ratios, loss_surfaces
from dolb.figures.learning_rates import (
    accuracy_by_epoch,
    accuracy_by_rate_and_batch,
    accuracy_by_rule,
    accuracy_by_warmup,
    first_updates,
    gain_by_remedy,
    time_by_remedy,
)
from dolb.figures.noise import maps, noise_by_eps, noise_by_extractor, noise_by_map, noise_stability

__all__ = [
    "accuracy_by_batch_size", "accuracy_by_decay", "accuracy_by_epoch", "accuracy_by_rate",
    "accuracy_by_rate_and_batch", "accuracy_by_rule", "accuracy_by_set", "accuracy_by_share",
    "accuracy_by_updates", "accuracy_by_warmup", "curvature_ratios", "first_updates", "gain_by_remedy", "gains",
    "loss_surfaces", "maps", "noise_by_eps", "noise_by_extractor", "noise_by_map", "noise_scales",
    "noise_stability", "preferred_batch_size", "recommendation", "time_by_remedy", "updates_by_examples",
]  # fmt: skip
