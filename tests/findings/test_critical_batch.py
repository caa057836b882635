"""The critical batch size is found where runs obey its law, and the noise scale is what was measured, inverted last."""

import numpy as np
import pytest
from made_runs import made_run

from dolb import results
from dolb.findings import critical_batch as study

SIZES = [64, 125, 250, 500, 1000, 2500, 5000, 12_500]
LEAST, CRITICAL = 40.0, 800.0


def run(losses, **changes):
    """Make a run whose training loss has these values by epoch."""
    ds = made_run((0.5,) * len(losses), **changes)
    return ds.assign(train_loss=ds["train_loss"].copy(data=np.array([losses], dtype="float32")))


def by_law(size, critical=CRITICAL, slower=1.0, epochs=50, **changes):
    """Make a run whose loss falls exponentially, to 1 after as many updates as the hyperbola says."""
    needed = LEAST * (1 + critical / size) * slower
    updates = (np.arange(epochs) + 0.5) * -(-50_000 // size)
    workers = 8 if size >= 250 else 1
    return run(np.exp(1 - updates / needed), batch_size=size, bn_workers=workers, **changes)


def test_the_loss_of_an_epoch_stands_at_its_middle_and_its_logarithm_is_interpolated():
    falling = run([4.0, 2.0, 0.5, 0.25], batch_size=500)
    found = study.reached(results.merge([falling]), target=1.0).iloc[0]
    assert found["updates"] == pytest.approx(2.0 * 100)  # half way from 2 to 0.5, which stand at 1.5 and 2.5 epochs
    assert found["examples"] == pytest.approx(2.0 * 50_000)
    assert np.isnan(study.reached(results.merge([falling]), target=0.1)["updates"]).all()


def test_the_best_rate_counts_and_only_if_all_its_seeds_arrive():
    runs = [by_law(500, lr=0.1), by_law(500, slower=3, lr=0.01), by_law(500, slower=0.5, lr=0.3)]
    runs.append(run([2.0] * 50, batch_size=500, bn_workers=8, lr=0.3, seed=1))
    best = study.fewest(study.reached(results.merge(runs), target=1.0))
    assert best["lr"].tolist() == [0.1]
    assert best["updates"].item() == pytest.approx(LEAST * (1 + CRITICAL / 500), rel=1e-3)


def test_the_critical_batch_of_runs_that_obey_the_law_is_found():
    ds = results.merge([by_law(size, arch=arch, lr=0.1) for arch in ("resnet18", "resnet50") for size in SIZES])
    points = study.fewest(study.reached(ds, target=1.0))
    fits = study.critical(points)
    assert fits["value"].to_numpy() == pytest.approx(CRITICAL, rel=0.02)
    assert (fits["low"] <= fits["value"]).all()
    assert (fits["value"] <= fits["high"]).all()
    np.testing.assert_allclose(fits["examples"] / fits["updates"], fits["value"])
    own = study.marks(fits)
    np.testing.assert_allclose(own["updates"], 2 * fits["updates"])
    np.testing.assert_allclose(own["examples"], 2 * fits["examples"])
    curves = study.hyperbolas(fits, points).merge(fits, on="arch", suffixes=("", "_least"))
    beyond = (curves["updates"] / curves["updates_least"] - 1) * (curves["examples"] / curves["examples_least"] - 1)
    np.testing.assert_allclose(beyond, 1)


def test_a_small_batch_that_needs_more_images_is_drawn_and_not_fitted():
    runs = [by_law(size, lr=0.1) for size in SIZES] + [by_law(16, slower=3, lr=0.1, epochs=50)]
    points = study.fewest(study.reached(results.merge(runs), target=1.0)).set_index("batch_size")
    assert not points["fitted"][16]
    assert points["fitted"][SIZES].all()
    assert study.critical(points.reset_index())["value"].item() == pytest.approx(CRITICAL, rel=0.02)


@pytest.mark.parametrize(("target", "points"), [(1.0, 3), (0.0, 0)])
def test_too_few_sizes_have_no_hyperbola_and_the_figures_tables_are_empty(target, points):
    found = study.fewest(study.reached(results.merge([by_law(size) for size in SIZES[:3]]), target))
    fits = study.critical(found)
    assert len(found) == points
    assert fits.empty
    assert study.hyperbolas(fits, found).empty
    assert study.marks(fits, 900).empty


def measured(inverses, **changes):
    """Make a run whose noise was measured twice; of each phase its inverse with all groups, and without each."""
    ds = run([2.0, 1.5, 1.0], **changes)
    over = ("run", "phase", "left_out")
    return ds.assign(
        phase_epoch=(over[:2], np.array([[1.0, 3.0]])),
        gradient_square=(over, 5.0 * np.array([inverses])),
        gradient_variance=(over, np.full((1, *np.shape(inverses)), 5.0)),
    )


def test_noise_scales_are_of_all_groups_and_of_the_mean_over_seeds():
    early, late = [0.01, *[0.0099, 0.0101] * 4], [0.001, *[-0.001, 0.003] * 4]
    one = study.noise_scales(measured([early, late]))
    assert one["epoch"].tolist() == [1, 3]
    assert one["value"].tolist() == pytest.approx([100, 1000])
    assert one["loss"].tolist() == pytest.approx([2.0, 1.0])
    assert one["low"][0] < 100 < one["high"][0] < np.inf
    assert one["high"][1] == np.inf  # the interval of the inverse holds zero
    fourfold = [[4 * value for value in early], late]
    both = study.noise_scales(results.merge([measured([early, late]), measured(fourfold, seed=1)]))
    assert both["value"][0] == pytest.approx(50)  # between 100 and 25
    assert both["low"][0] < 25 < 100 < both["high"][0]
    assert both["n"].tolist() == [2, 2]
    drawn = study.compared(study.critical(study.fewest(study.reached(results.merge([by_law(500)])))), one)
    assert np.isfinite(drawn[["value", "low", "high"]]).all(axis=None)


def test_the_table_has_a_row_for_each_network_also_without_a_fit():
    ds = results.merge([by_law(size, arch=arch, lr=0.1) for arch in ("resnet18", "resnet50") for size in SIZES])
    fits = study.critical(study.fewest(study.reached(ds, target=1.0)))
    noise = study.noise_scales(measured([[0.01] * 3, [0.0] * 3], arch="resnet50"))
    table = study.beside(fits[fits["arch"] == "resnet18"], noise, ds).set_index("network")
    assert table.index.tolist() == ["resnet18", "resnet50"]
    assert table.loc["resnet50", "noise scale after epoch 1"] == "100 (100 to 100)"
    assert table.loc["resnet50", "noise scale after epoch 3"].startswith("∞")
    assert table.loc["resnet50"].iloc[0] == table.loc["resnet18", "noise scale after epoch 1"] == ""
