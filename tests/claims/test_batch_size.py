"""The effects of G1 to G4 follow from runs: made curves give the effects that their shapes have."""

from itertools import chain

import numpy as np
import pytest
from made_runs import made_curve, made_run

from dolb import claims, results

PEAK = {16: 0.60, 64: 0.70, 256: 0.80, 1024: 0.75, 8192: 0.60, 20480: 0.50}
FALL = {16: 0.80, 64: 0.75, 256: 0.70, 1024: 0.65, 8192: 0.50, 20480: 0.40}
SHALLOW, DEEP = ("resnet18", "resnet34"), ("resnet50", "resnet101", "resnet152")
SIZES = [2**k for k in range(7, 15)]


def judged(name, *curves):
    return claims.published_verdicts([name], batch_size=results.merge(chain(*curves)))[name]


def test_g1_is_by_how_much_the_best_of_a_curve_is_above_its_ends():
    found = judged("G1", made_curve(PEAK, lr=0.1), made_curve(PEAK, lr=0.01))
    assert [estimate.value for estimate in found.estimates] == pytest.approx([20, 30], abs=1e-4)
    assert [estimate.n for estimate in found.estimates] == [2, 2]
    assert found.outcome == "replicated"


def test_g1_is_not_replicated_where_no_curve_rises():
    falling = [made_curve(FALL, lr=lr) for lr in (0.01, 0.03, 0.1)]
    assert judged("G1", *falling).outcomes == ("not replicated", "replicated")


def test_g1_counts_a_curve_for_an_end_only_if_it_reaches_that_of_the_claim():
    from_64 = {size: value for size, value in PEAK.items() if size > 16}
    rise, fall = judged("G1", *(made_curve(PEAK, lr=lr) for lr in (0.1, 1)), made_curve(from_64, lr=0.01)).estimates
    assert (rise.n, fall.n) == (2, 3)
    assert judged("G1", made_curve(from_64, lr=0.1)).outcome == "not yet measured"
    assert judged("G1", made_curve({16: 0.5, 256: 0.6}, lr=0.1)).outcome == "not yet measured"


def level(lr, apart):
    """A level curve for each network, each ``apart`` below the one before."""
    return [
        made_curve(dict.fromkeys(SIZES, 0.8 - apart * place), lr=lr, arch=arch)
        for place, arch in enumerate(SHALLOW + DEEP)
    ]


def test_g2_is_how_much_farther_apart_the_depths_are_at_the_highest_rate():
    found = judged("G2", *level(0.01, 0.002), *level(0.1, 0.05))
    assert found.estimates[0].value == pytest.approx(100 * 4 * (0.05 - 0.002), abs=1e-4)
    assert found.estimates[0].n == len(SIZES) * 2 * 5  # runs: two rates, five networks
    assert found.outcome == "replicated"
    assert judged("G2", *level(0.01, 0.05), *level(0.1, 0.002)).outcome == "not replicated"

    assert judged("G2", *level(0.01, 0.01)).outcome == "not yet measured"


CLIFF = dict(zip(SIZES, [0.8] * 4 + [0.2] * 4, strict=True))
SLOPE = dict(zip(SIZES, np.linspace(0.8, 0.2, len(SIZES)), strict=True))


def depths(shallow, deep, rates=(0.01, 0.1)):
    """Curves of every network, shallow and deep ones with a shape each; a hair apart, as equal ones have no spread."""
    shapes = dict.fromkeys(SHALLOW, shallow) | dict.fromkeys(DEEP, deep)
    return [
        made_curve(
            {size: value * (1 - 0.01 * place * (size == 512)) for size, value in shape.items()}, lr=lr, arch=arch
        )
        for place, (arch, shape) in enumerate(shapes.items())
        for lr in rates
    ]


def test_g3_is_how_much_more_suddenly_deep_networks_fall():
    found = judged("G3", *depths(SLOPE, CLIFF))
    assert found.estimates[0].value == pytest.approx(1, abs=0.1)
    assert found.estimates[0].n == len(SHALLOW) * 2
    assert found.outcome == "replicated"
    assert judged("G3", *depths(CLIFF, SLOPE)).outcome == "not replicated"


def test_g3_compares_at_rates_that_every_network_has():
    extra = made_curve(CLIFF, lr=0.3, arch="resnet18")
    assert judged("G3", *depths(SLOPE, CLIFF), extra).estimates[0].n == len(SHALLOW) * 2
    shallow_alone = [made_curve(SLOPE, lr=lr, arch="resnet18") for lr in (0.01, 0.1)]
    assert judged("G3", *shallow_alone).outcome == "not yet measured"


def small_batch(shared, small):
    """Seeds of a batch of 400, alone and in 25 shares of 16, and of a batch of 16."""
    cells = {(400, 1): 0.80, (400, 5): 0.80, (400, 25): shared, (16, 1): small}
    return [
        made_run((value + 0.001 * seed,) * 5, batch_size=size, bn_workers=workers, seed=seed)
        for (size, workers), value in cells.items()
        for seed in range(3)
    ]


def test_g4_is_what_the_statistics_cost_less_what_the_gradient_costs():
    found = judged("G4", small_batch(shared=0.70, small=0.68))
    assert found.estimates[0].value == pytest.approx(10 - 2, abs=1e-4)
    assert found.estimates[0].n == 3 * 3  # runs of three cells
    assert found.outcome == "replicated"
    assert judged("G4", small_batch(shared=0.79, small=0.68)).outcome == "not replicated"

    assert judged("G4", made_curve(PEAK, lr=0.1)).outcome == "not yet measured"
