"""Effects of warmup and rate scaling, on runs whose accuracies are made to an answer."""

import numpy as np
import pytest
from made_runs import made_run, made_study

from dolb import claims, recipes, results
from dolb.findings import lr_scaling, warmup
from dolb.findings.runs import final_accuracy

LENGTHS = (0, 1, 2, 5, 10, 20, 30)


def noise(config, size=0.002):
    return size * np.random.default_rng([config.seed, config.batch_size, int(config.warmup_epochs)]).normal()


def peaked(config):
    """Warmup is best at 5 epochs with a batch of 300 and at 10 with one of 1,200; a larger batch costs a little."""
    best = 5 * (config.batch_size / 300) ** 0.5
    return 0.8 - 0.04 * np.log2(max(0.5, config.warmup_epochs) / best) ** 2 - config.batch_size / 4e4 + noise(config)


@pytest.fixture(scope="module")
def runs():
    narrowed = {"archs": ["resnet50"], "lrs": [0.0125]}
    chosen = [
        run for part in ("warmups", "batches") for run in recipes.configs("warmup", "paper", part=part, **narrowed)
    ]
    return made_study(peaked, list({run.key: run for run in chosen}.values()))


def verdicts(**found):
    return claims.published_verdicts([f"M{k}" for k in range(1, 8)], **found)


def test_a_study_like_the_documents_is_replicated(runs):
    found = verdicts(warmup=runs)
    assert {name: found[name].outcome for name in ("M1", "M2", "M3", "M4", "M5", "M6")} == dict.fromkeys(
        ("M1", "M2", "M3", "M4", "M5", "M6"), "replicated"
    )
    grows, short_of_one = found["M6"].estimates
    assert grows.low < 0.5 < grows.high
    assert short_of_one.value == pytest.approx(1 - grows.value)


def test_effects_are_paired_by_seed_and_in_points(runs):
    (estimate,) = verdicts(warmup=runs)["M1"].estimates
    assert estimate.n == 10
    exact = 100 * (peaked_at(150) - peaked_at(1200))
    assert estimate.low < exact < estimate.high


def peaked_at(batch_size):
    best = 5 * (batch_size / 300) ** 0.5
    return 0.8 - 0.04 * np.log2(5 / best) ** 2 - batch_size / 4e4


def test_where_warmup_does_nothing_its_claims_do_not_hold(runs):
    flat = made_study(
        lambda config: 0.8 + noise(config),
        recipes.configs("warmup", "paper", part="warmups", archs=["resnet50"], lrs=[0.0125]),
    )
    found = verdicts(warmup=flat)
    assert {found[name].outcome for name in ("M2", "M3", "M4", "M5")} == {"not replicated"}


def test_a_length_is_compared_with_the_best_other_by_the_mean_over_all_seeds():
    near = recipes.configs("warmup", "paper", part="warmups", archs=["resnet50"], lrs=[0.0125], warmups=[0, 5, 10, 20])
    ds = made_study(lambda config: 0.8 + noise(config, 0.05), near)
    table = warmup.by_seed(final_accuracy(ds).query("batch_size == 300"), (0, 5, 10, 20))
    means = 100 * table.mean()
    (estimate,) = verdicts(warmup=ds)["M3"].estimates
    assert estimate.value == pytest.approx(means[5] - means.drop(5).max(), abs=1e-4)


def test_linear_scaling_is_compared_with_none_at_the_largest_batch(runs):
    same = {"arch": "resnet50", "batch_size": 1200, "lr": 0.0125, "warmup_epochs": 5, "epochs": 90, "bn_workers": 40}
    none = results.merge(
        made_run((0.5 + 0.001 * seed,) * 90, experiment="lr-scaling", seed=seed, **same) for seed in range(3)
    )
    found = verdicts(warmup=runs, lr_scaling=none)
    assert found["M7"].outcome == "not replicated"
    assert found["M7"].estimates[0].n == 3
    assert verdicts(lr_scaling=none)["M7"].outcome == "not yet measured"
    (row,) = lr_scaling.linear_or_none(none, runs).to_dict("records")
    assert (row["network"], row["batch size"], row["no scaling"]) == ("resnet50", "1,200", "50.1%")
    assert row["gain, points"] == found["M7"].estimates[0].written("+.1f")


def ridge(config, power=0.5):
    best = 0.05 * (config.batch_size / 150) ** power
    return 0.9 - 0.02 * np.log2(config.lr / best) ** 2 + noise(config, 0.001)


def test_the_exponent_of_the_best_rate_is_found_and_the_rule_that_has_it_loses_nothing():
    ladder = recipes.configs("lr-scaling", "paper", part="ladder", archs=["resnet18"])
    ds = made_study(ridge, ladder)
    estimate = lr_scaling.exponents(ds)["resnet18"]
    assert estimate.low < 0.5 < estimate.high
    assert estimate.n == 3
    lost = lr_scaling.by_rule(ds).set_index(["rule", "batch_size"])["lost"]
    assert abs(lost["square root", 1200]) < 0.7
    assert lost["linear", 1200] > 3
    assert lost["none", 1200] > 3
    best = lr_scaling.best_rates(ds).set_index("batch_size")
    assert best.loc[600, "low"] < 0.1 < best.loc[600, "high"]
    assert not best["at_edge"].any()
