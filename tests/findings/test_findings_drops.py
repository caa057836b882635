"""Runs that dropped late are named, with what counts for them."""

from made_runs import joined, made_run

from dolb.findings import drops

STEADY, DROPPED = (0.7,) * 10, (*(0.7,) * 9, 0.2)


def test_runs_that_dropped_late_are_counted_and_named_the_shallow_first():
    settings = [{"arch": "resnet152", "batch_size": 256, "bn_workers": 8}, {"arch": "resnet18", "batch_size": 1024}]
    ds = joined([made_run(STEADY, lr=0.03), *(made_run(DROPPED, lr=0.03, **one) for one in settings)])
    found = drops.in_words(ds)
    assert found.startswith("2 of 3 runs dropped late: one of a run's last 10 epochs lies more than 15 points below")
    last_five = (4 * 0.7 + 0.2) / 5
    table = drops.table(ds)
    assert table.index.tolist() == ["resnet18", "resnet152"]
    assert table.loc["resnet152"].tolist() == ["256", 8, "0.03", 0, f"{last_five:.1%}", "dropped late"]


def test_it_is_said_where_none_did():
    assert drops.in_words(made_run(STEADY)).startswith("No run dropped late")


def test_runs_that_ended_at_chance_are_named_too():
    ds = joined([made_run(STEADY), made_run((0.1,) * 10, lr=0.3, seed=3)])
    assert drops.in_words(ds).endswith(". 1 ended near chance, at 12% or less, without having diverged.")
    assert drops.table(ds)[["rate", "seed", "what it did"]].to_numpy().tolist() == [["0.3", 3, "near chance"]]


def test_a_number_is_followed_by_how_many_of_its_runs_dropped():
    assert drops.in_brackets(0, 2) == ""
    assert drops.in_brackets(1, 2) == " (1 of 2 runs dropped late)"
    assert drops.in_brackets(3, 3) == " (all 3 runs dropped late)"


def test_runs_that_diverged_are_named_too():
    ds = joined([made_run(STEADY), made_run((0.1,) * 10, lr=0.3, seed=3, diverged=True)])
    assert drops.in_words(ds).endswith(" 1 run diverged: what counts is the last epoch.")
    assert drops.table(ds)[["rate", "seed", "what it did"]].to_numpy().tolist() == [["0.3", 3, "diverged"]]
