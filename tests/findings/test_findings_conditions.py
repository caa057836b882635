"""What a page says of how ranks were measured: against what, on which cores, beside what; and what nobody recorded."""

import numpy as np
import pytest
from made_scaling import completed, made_linked, made_measurement, made_measurements, small_simulation

from dolb import results
from dolb.findings import conditions
from dolb.profiling.config import ScalingConfig


def ranks_on(pinned, threads_per_core=1.0, busy=0.1, **changes):
    """A measurement that recorded the machine."""
    told = {"threads_per_rank": 1.0 if pinned else 16.0, "threads_per_core": threads_per_core, "busy_threads": busy}
    row = made_measurement(pinned=pinned, **changes)
    return row.assign({name: ("run", np.array([value])) for name, value in told.items()})


def test_efficiency_over_one_rank_without_a_library_is_told_with_how_far_before_and_after_differ():
    rows = [made_measurement(repeat=k, alone=(100, after)) for k, after in enumerate((100, 90, 110))]
    said = conditions.baseline(results.merge(rows))
    assert "one rank without any library" in said
    assert "differ by 10% in the median" in said  # of 0%, 11% and 10%
    assert "older" not in said


def test_results_without_such_a_rank_are_said_to_be_over_the_library_s_own():
    assert "one rank under the same library" in conditions.baseline(made_measurement())
    both = results.merge([made_measurement(), made_measurement(repeat=1, alone=(100, 100))])
    assert "1 of 2 runs are older and are compared with one rank under their own library" in conditions.baseline(both)


def test_pinned_ranks_are_said_to_have_a_core_each_and_what_ran_beside_them():
    said = conditions.cores(results.merge([ranks_on(True, busy=0.04), ranks_on(True, busy=1.27, repeat=1)]))
    assert "Each rank was held to one core of its own, the threads of its library included." in said
    assert "kept at most 1.3 cores busy" in said
    assert "hardware thread" not in said


def test_cores_that_are_hardware_threads_are_called_so():
    assert "hardware thread, of which 2 share" in conditions.cores(ranks_on(True, threads_per_core=2.0))


@pytest.mark.parametrize("pinned", [True, False])
def test_only_pinned_ranks_are_said_to_have_a_core(pinned):
    assert ("core of its own" in conditions.cores(ranks_on(pinned))) == pinned


def test_what_ranks_train_on_and_how_much_of_it_is_said():
    rows = [
        made_measurement(batch_size_per_rank=16),
        made_measurement(batch_size_per_rank=32, scaling="strong", ranks=2),
    ]
    assert conditions.trained(results.merge(rows)) == (
        "Ranks train on random images in the shape of CIFAR-10, 16 a rank under weak scaling and 64 in all under "
        "strong scaling."
    )


def test_runs_with_less_than_a_core_free_for_each_rank_are_counted():
    """On four cores, three ranks beside one busy core have one each, and beside one and a half have not."""
    rows = [
        ranks_on(True, busy=busy, ranks=3, repeat=repeat, device="a processor, 4 cores")
        for repeat, busy in enumerate((1.0, 1.5))
    ]
    said = conditions.cores(results.merge(rows))
    assert "In 1 of the 2 runs on 3 ranks less than a core was free for each rank then: they lacked 0.5 to 0.5" in said
    assert "less than a core" not in conditions.cores(ranks_on(True, busy=5.0))  # of how many is not known


def test_points_of_both_scalings_are_said_to_be_compared_with_other_launches(simulation):
    each = ScalingConfig(experiment="ddp-vs-horovod").batch_size_per_rank
    strong = made_measurement(90, batch_size_per_rank=4 * each, scaling="strong", alone=(100, 100))
    said = conditions.baseline(completed([*repeated(), strong], simulation))
    assert "The points of strong scaling on 4 ranks are runs of weak scaling" in said
    assert "other launches" not in conditions.baseline(completed([*repeated()], simulation))


def test_what_was_not_recorded_is_said_not_to_be():
    assert "is not recorded" in conditions.cores(made_measurement())
    both = results.merge([made_measurement(), ranks_on(True, repeat=1)])
    assert "Of 1 older runs nothing of this is recorded." in conditions.cores(both)


def test_the_published_page_says_what_is_true_of_its_rows(repo_root):
    ds = results.load(repo_root / "results" / "ddp-vs-horovod.nc")
    measured = ds["source"].values == "measured"
    held = "pinned" in ds and bool(ds["pinned"].values[measured].all())
    assert ("Each rank was held to one core" in conditions.cores(ds)) == held


# How often


def repeated():
    """Two libraries on 1, 2 and 4 ranks, twice: the second time 10% faster on several ranks."""
    return made_measurements(lambda _, ranks, repeat: 100.0 * ranks * (1 + 0.1 * repeat * (ranks > 1)), repeats=2)


@pytest.fixture(scope="module")
def simulation():
    return small_simulation()


def test_bars_are_told_with_the_spread_that_they_rest_on(simulation):
    ds = completed(repeated(), simulation)
    spread = np.expm1(np.log([1, 1.1]).std(ddof=1))  # alike in four cells, one degree of freedom each
    assert conditions.bars(ds) == "Bars are 95% intervals, spread pooled per network."
    row = conditions.spreads(ds).query("ranks == 'several'").loc["smallnet-8"]
    assert row[["throughput", "efficiency", "degrees of freedom"]].tolist() == [f"{spread:.0%}", f"{spread:.0%}", 4]
    assert row["timed steps of a run"] == "1"


def test_without_repetitions_there_are_said_to_be_no_bars(simulation):
    rows = made_measurements(lambda _, ranks, __: 100.0 * ranks, repeats=1)
    assert "no bars" in conditions.bars(completed(rows, simulation))
    assert conditions.spreads(completed(rows, simulation)).empty


def test_settings_links_and_points_of_both_scalings_are_counted_for_what_they_are(simulation):
    each = ScalingConfig(experiment="ddp-vs-horovod").batch_size_per_rank
    rows = [
        *repeated(),
        made_measurement(400, library="horovod", ranks=4, cycle_time_ms=25.0),
        *(row for row in made_linked(lambda *_: 100.0, repeats=1) if row["hosts"].item() > 1),
        made_measurement(150, ranks=2, batch_size_per_rank=2 * each, scaling="strong"),
        made_measurement(90, ranks=1, batch_size_per_rank=4 * each, scaling="strong"),
    ]
    said = conditions.made(completed(rows, simulation), set())
    # 2 libraries on 3 numbers of ranks, twice, and 2 of strong scaling; the 4 ranks of DDP are a point of that too.
    assert said == (
        "19 measurements stand behind this half: 14 of 8 cells, 1 of settings other than the defaults, 4 over links. "
        "1 of these cells are points of weak and of strong scaling, and are drawn as both. 2 of the cells were "
        "measured once: their bars rest on the repetitions of others."
    )


@pytest.mark.parametrize(
    ("further", "kept", "says"),
    [
        ({"c"}, True, "Of the grid of the paper scale 1 of 13 are not made yet."),
        ({"c"}, False, "made with other settings than the grid has now, and all of its 1 are to come."),
    ],
)
def test_what_is_measured_is_told_with_what_the_grid_lacks(simulation, further, kept, says):
    rows = repeated()
    keys = {row["key"].item() for row in rows} if kept else set()
    assert says in conditions.made(completed(rows, simulation), keys | further)


def test_spans_that_overlap_on_the_one_core_of_a_rank_are_said_to_be_slices_of_time():
    assert conditions.turns(ranks_on(True)).startswith("On the one core of a rank threads of the library take turns")
    for some in (ranks_on(False), results.merge([ranks_on(True), ranks_on(False, repeat=1)])):
        assert conditions.turns(some).startswith("Where there are fewer cores than threads")
    old = made_measurement().drop_vars("pinned")
    assert "slices of time" in conditions.turns(old)
