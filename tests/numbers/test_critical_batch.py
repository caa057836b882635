"""The critical batch sizes of page 10 are those that were published before."""

from agreement import agrees

from dolb import results
from dolb.findings import critical_batch


def test_updates_to_the_target_and_critical_batch_sizes():
    points = critical_batch.fewest(critical_batch.reached(results.published("batch-size")))
    agrees(points, "trade-off", ["arch", "batch_size"])
    agrees(critical_batch.critical(points), "critical-batch", ["arch"])


def test_noise_scales():
    agrees(critical_batch.noise_scales(results.published("critical-batch")), "noise-scales", ["arch", "epoch"])
