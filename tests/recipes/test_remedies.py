"""Remedies for large batches: one search for all, winners by what was tried, with seeds that no trial had."""

from collections import Counter
from dataclasses import fields

import pytest

from dolb import recipes
from dolb.recipes import remedies

SLUG = "large-batch-remedies"
SIZES = (1024, 4096, 16384)


def trials(method, size=4096):
    """The trials of one method at one batch size, of which plain's come first."""
    runs = recipes.configs(SLUG, "paper", part="search", methods=[method], batch_sizes=[size])
    return runs if method == "plain" else runs[len(trials("plain", size)) :]


def reached(runs, *best):
    """Accuracies by key: higher for some runs, in the order given from the highest on."""
    return {run.key: 0.5 for run in runs} | {run.key: 0.9 - 0.01 * place for place, run in enumerate(best)}


def differing(one, other):
    return {field.name for field in fields(one) if getattr(one, field.name) != getattr(other, field.name)}


def test_every_method_has_as_many_trials_at_every_batch_size():
    counts = Counter((method, size) for method in remedies.METHODS for size in SIZES for _ in trials(method, size))
    assert set(counts.values()) == {8}
    assert set(counts) == {(name, size) for name in remedies.METHODS for size in SIZES} - {("longer", 1024)}


@pytest.mark.parametrize(
    ("method", "changed"),
    [
        ("nesterov", {"optimizer"}),
        ("lars", {"optimizer", "lr", "trust", "weight_decay_on"}),
        ("lamb", {"optimizer", "lr", "weight_decay", "weight_decay_on"}),
        ("legw", {"lr", "lr_scaling", "base_batch_size", "warmup_epochs"}),
        ("label-smoothing", {"label_smoothing"}),
        ("no-decay-on-norms", {"weight_decay_on"}),
        ("ghost-batch-norm", {"bn_workers"}),
        ("polynomial", {"decay"}),
        ("cosine", {"decay"}),
        ("longer", {"epochs", "decay", "warmup_epochs"}),
    ],
)
def test_a_trial_differs_from_the_plain_one_of_its_point_in_the_remedy_alone(method, changed):
    for own, plain in zip(trials(method), trials("plain"), strict=True):
        assert differing(own, plain) <= changed


def test_what_follows_from_the_search_is_left_out_of_all_and_refused_by_name_until_the_search_is_done():
    search = recipes.configs(SLUG, "paper", part="search")
    assert recipes.configs(SLUG, "paper") == search
    for part in ("stack", "winners"):
        with pytest.raises(ValueError, match="of which 1 runs are not there; run part 'search'"):
            recipes.configs(SLUG, "paper", part=part, tried=reached(search[1:]))


def test_winners_are_the_best_trials_with_seeds_that_no_trial_had():
    search = recipes.configs(SLUG, "demo", part="search")
    best = [trial for trial in search if trial.optimizer == "lars"][1]
    winners = recipes.configs(SLUG, "demo", part="winners", tried=reached(search, best))
    assert {run.seed for run in search} == {0}
    assert {run.seed for run in winners} == {1, 2}
    own = [run for run in winners if (run.optimizer, run.batch_size) == (best.optimizer, best.batch_size)]
    assert {run.lr for run in own} == {best.lr}
    assert len(winners) == 2 * 2 * 4  # sizes, seeds, methods; the stack is not tried yet


def test_the_stack_has_the_best_optimizer_and_what_alone_was_better_than_plain():
    at = {"batch_sizes": [4096], "part": "search"}
    search = recipes.configs(SLUG, "paper", **at)
    good = [trials(name)[2] for name in ("lars", "cosine", "label-smoothing", "plain", "polynomial", "lamb")]
    stack = recipes.configs(SLUG, "paper", **at | {"part": "stack"}, tried=reached(search, *good))
    assert {run.optimizer for run in stack} == {"lars"}
    assert {run.decay for run in stack} == {"cosine"}
    assert {run.bn_workers for run in stack} == {1}
    assert min(run.label_smoothing for run in stack) > 0
    assert [(run.lr, run.weight_decay) for run in stack] == [(run.lr, run.weight_decay) for run in trials("lars")]


def test_the_stack_has_winners_once_it_is_tried():
    search = recipes.configs(SLUG, "demo", part="search")
    best = [trial for trial in search if trial.decay == "cosine"]
    tried = reached(search, *best)
    stack = recipes.configs(SLUG, "demo", part="stack", tried=tried)
    whole = recipes.configs(SLUG, "demo", tried=tried | reached(stack))
    assert len(whole) == len({*search, *stack}) + len({run.key for run in whole if run.seed})
    assert {run.key for run in stack} <= {run.key for run in whole}


def test_a_stack_needs_the_search_of_all_and_winners_are_of_the_methods_asked_for():
    search = recipes.configs(SLUG, "demo", methods=["stack"])
    assert search == recipes.configs(SLUG, "demo")
    winners = recipes.configs(SLUG, "demo", part="winners", methods=["stack"], tried=reached(search))
    assert {(run.optimizer, run.decay.split(":")[0], run.label_smoothing) for run in winners} == {("sgd", "step", 0)}


def test_other_epochs_move_warmup_and_decay_along():
    runs = recipes.configs(SLUG, "paper", methods=["plain"], epochs=25)
    assert {(run.epochs, run.warmup_epochs, run.decay) for run in runs} == {(25, 2.5, "step:15,22.5")}
