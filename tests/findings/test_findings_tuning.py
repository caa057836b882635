"""What was tried for the recipe is told in words, with the rate that was taken and whether another was better."""

from made_runs import made_run

from dolb import recipes, results
from dolb.findings import tuning


def tried(**best_at):
    """Two rates at two batch sizes; at each size the rate named is the better one."""
    return results.merge(
        made_run((0.8 if lr == best_at[f"b{size}"] else 0.7,) * 5, batch_size=size, lr=lr)
        for size in (64, 256)
        for lr in (0.1, 0.2)
    )


def test_every_rate_is_told_and_the_one_taken_named():
    told = tuning.in_words(tried(b64=0.1, b256=0.2), {64: 0.1, 256: 0.1})
    assert "At batch 64, by rate: 0.1 80.0%, 0.2 70.0%; taken was 0.1, which is the best of these." in told
    assert "At batch 256, by rate: 0.1 70.0%, 0.2 80.0%; taken was 0.1, where 0.2 is the best of these." in told


def test_the_rate_of_extractors_is_among_those_tried_at_their_batch():
    for scale in ("demo", "paper"):
        cells = {(run.batch_size, run.lr) for run in recipes.configs("extractor-tuning", scale)}
        assert set(recipes.tuned_extractor(scale).items()) <= cells
        assert recipes.extractor_rate(scale) in recipes.tuned_extractor(scale).values()


def test_without_runs_it_says_so():
    assert "not among the published results" in tuning.in_words(None, {64: 0.1})


def test_the_rates_that_were_taken_are_among_those_tried_and_all_else_is_the_recipes():
    for scale in ("demo", "paper"):
        runs = recipes.configs("tuning", scale)
        assert {run.subset for run in runs} == {"full"}
        for size, lr in recipes.tuned(scale).items():
            assert lr in {run.lr for run in runs if run.batch_size == size}
            assert lr == recipes.rate(scale, size)
    study = {run.batch_size: run for run in recipes.configs("filtered-large-batch", "paper", sets=["full"], seeds=[0])}
    ours = next(run for run in recipes.configs("tuning", "paper") if (run.batch_size, run.lr) == (6272, 0.05))
    assert ours.as_dict() | {"experiment": ""} == study[6272].as_dict() | {"experiment": ""}
