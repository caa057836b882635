"""Judges of what bounds training on many nodes, by times of layers whose answer is known."""

from made_limits import made_network, made_study

from dolb import claims, results
from dolb.profiling import limits


def outcomes(ds):
    return {name: one.outcome for name, one in claims.published_verdicts(["K1", "K2", "K3", "K4"], limits=ds).items()}


def ideal(size):
    return {"conv": 2e-3 * size}


def stuck(size):
    return {"conv": 0.02 * size, "update": 0.4}


def test_networks_that_shrink_lose_nothing_and_only_links_bound_them():
    found = outcomes(made_study(ideal, ideal, product=lambda size: 1e-4 * size))
    assert found == {"K1": "replicated", "K2": "not replicated", "K3": "not replicated", "K4": "replicated"}


def test_an_update_that_does_not_shrink_is_lost_as_amdahl_says_and_a_product_reads_its_weights():
    found = outcomes(made_study(stuck, stuck))
    assert (found["K2"], found["K3"], found["K4"]) == ("replicated", "replicated", "replicated")


def test_many_layers_that_shrink_a_little_are_no_matter_of_amdahls_law():
    def halfway(size):
        return {"conv": 0.02 * size + 0.15, "fc": 0.02 * size + 0.15}

    assert outcomes(made_study(halfway, halfway))["K4"] == "not replicated"


def test_without_one_of_the_two_networks_or_its_batch_or_with_one_seed_nothing_is_judged():
    alone = limits.with_simulated(results.merge(made_network("alexnet", stuck, [1, 8, 64, 256], 250)))
    rows = [one for seed in (0, 1) for one in made_network("googlenet", stuck, [1, 8, 16], 50, seed)]
    rows += [one for seed in (0, 1) for one in made_network("alexnet", stuck, [1, 8, 64, 256], 250, seed)]
    short = limits.with_simulated(results.merge(rows))  # GoogLeNet's batch of 32 is lacking
    for ds in (alone, short, made_study(stuck, stuck, seeds=(0,))):
        assert set(outcomes(ds).values()) == {"not yet measured"}
