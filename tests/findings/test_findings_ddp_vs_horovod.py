"""The numbers of DDP against Horovod: cells with intervals, ratios within a repetition, bends, what tuning gains."""

import numpy as np
import pandas as pd
import pytest
from made_scaling import completed, made_linked, made_measurement, made_measurements, small_simulation
from scipy import stats

from dolb.findings import ddp_vs_horovod as study


@pytest.fixture(scope="module")
def simulation():
    return small_simulation()


def loses(library, ranks, repeat):
    """DDP loses 5% of efficiency with every doubling, Horovod 10%; the machine is slower at every repetition."""
    lost = {"ddp": 0.05, "horovod": 0.10}[library]
    return (100 - 20 * repeat) * ranks * (1 - lost * np.log2(ranks))


def test_cells_have_the_geometric_mean_and_an_interval_by_the_spread_of_all_cells_of_several_ranks(simulation):
    ds = completed(made_measurements(loses), simulation)
    cell = study.cells(ds).set_index(["variant", "ranks"]).loc[("DDP", 4)]
    logs = np.log([loses("ddp", 4, repeat) for repeat in range(3)])
    # All four cells of several ranks, two libraries on 2 and on 4, spread alike: two degrees of freedom each.
    half = stats.t.ppf(0.975, 4 * 2) * logs.std(ddof=1) / np.sqrt(3)
    assert cell["images_per_second"] == pytest.approx(np.exp(logs.mean()))
    assert cell["speed_high"] == pytest.approx(np.exp(logs.mean() + half))
    # What slows a whole repetition is not in the efficiency.
    assert cell["efficiency"] == pytest.approx(0.9)
    assert cell["high"] - cell["low"] == pytest.approx(0, abs=1e-9)


def test_where_nothing_was_repeated_there_is_no_interval(simulation):
    ds = completed(made_measurements(loses, repeats=1), simulation)
    assert study.cells(ds)["low"].isna().all()
    assert study.gaps(ds)["low"].isna().all()


def test_a_cell_that_was_measured_once_has_the_interval_of_others_wider_by_its_one_run(simulation):
    once = [made_measurement(600, library="ddp", ranks=8)]
    cells = study.cells(completed([*made_measurements(loses), *once], simulation))
    cells = cells.set_index(["library", "ranks"])
    reach = np.log(cells["speed_high"] / cells["images_per_second"])
    assert reach["ddp", 8] == pytest.approx(np.sqrt(3) * reach["ddp", 4])


def test_one_rank_and_several_have_spreads_of_their_own(simulation):
    def alone_varies(library, ranks, repeat):
        return 100.0 * ranks * (1 + 0.2 * repeat * (ranks == 1))

    spreads = study.cell_spreads(completed(made_measurements(alone_varies), simulation))
    (several,), (one,) = (spreads[many]["images_per_second"].values() for many in (True, False))
    assert several.deviation == pytest.approx(0)
    assert one.deviation == pytest.approx(np.log([1, 1.2, 1.4]).std(ddof=1))


def two_networks(simulation, repeats):
    """A steady network, and one whose libraries' ratio varies; on 2, 4 and 8 ranks."""
    rows = [
        row
        for arch, varies in (("resnet18", 0.0), ("vgg11", 0.2))
        for row in made_measurements(
            lambda library, ranks, repeat, varies=varies: 100.0 * ranks * (1 + varies * repeat * (library == "ddp")),
            ranks=(2, 4, 8),
            repeats=repeats,
            arch=arch,
        )
    ]
    return study.gaps(completed(rows, simulation)).set_index(["arch", "ranks"])


def test_a_steady_network_is_not_widened_by_another_that_is_not(simulation):
    gaps = two_networks(simulation, repeats=4)  # three cells of three degrees of freedom each
    assert gaps.loc[("resnet18", 8), "freedom"] == 9
    assert gaps.loc[("resnet18", 8), "log_error"] == pytest.approx(0)
    assert gaps.loc[("vgg11", 8), "log_error"] == pytest.approx(np.log(1 + 0.2 * np.arange(4)).std(ddof=1) / 2)


def test_networks_with_too_few_repetitions_share_their_spread(simulation):
    gaps = two_networks(simulation, repeats=2)  # three degrees of freedom each
    assert set(gaps["freedom"]) == {6}
    assert len(set(gaps["log_error"])) == 1


def test_a_setting_that_was_measured_once_has_the_interval_of_ratios_of_the_libraries(simulation):
    """Within a repetition the libraries' ratio varies; a setting was tried in the first repetition alone."""

    def speed(library, ranks, repeat):
        return 100.0 * ranks * (1 + 0.1 * repeat * (library == "ddp"))

    once = made_measurement(440, library="horovod", ranks=4, cycle_time_ms=25.0)
    table = study.tuned(completed([*made_measurements(speed), once], simulation))
    row = table[(table["source"] == "measured") & ~table["default"].astype(bool)].iloc[0]
    deviation = np.log([1, 1.1, 1.2]).std(ddof=1)  # of 2 and of 4 ranks alike: four degrees of freedom
    assert row["high"] / row["ratio"] == pytest.approx(np.exp(stats.t.ppf(0.975, 4) * deviation))


def test_simulated_settings_and_the_defaults_have_no_interval(simulation):
    once = made_measurement(440, library="horovod", ranks=4, cycle_time_ms=25.0)
    table = study.tuned(completed([*made_measurements(loses), once], simulation))
    without = table[table["default"].astype(bool) | (table["source"] == "simulated")]
    assert without["low"].isna().all()
    assert set(table.loc[table["default"].astype(bool), "setting"]) == {
        "buckets of 25 MiB",
        "cycle 1 ms, fusion 128 MiB",
        "cycle 5 ms, fusion 64 MiB",  # of the simulated version
    }


def test_tuned_runs_are_no_part_of_the_cells(simulation):
    rows = [*made_measurements(loses), made_measurement(1.0, library="horovod", ranks=4, cycle_time_ms=25.0)]
    ds = completed(rows, simulation)
    cell = study.cells(ds).set_index(["variant", "ranks"]).loc[("Horovod", 4)]
    assert cell["repeats"] == 3


def test_the_gap_is_of_throughput_on_as_many_ranks_whatever_one_rank_does(simulation):
    def slow_alone(library, ranks, repeat):
        """Alone DDP is half as fast as Horovod, which flatters its efficiency; on four ranks they are alike."""
        return 50.0 if (library, ranks) == ("ddp", 1) else 100.0 * ranks - repeat

    ds = completed(made_measurements(slow_alone), simulation)
    assert study.gaps(ds).set_index("ranks").loc[4, "ratio"] == pytest.approx(1)
    efficiency = study.cells(ds).set_index(["library", "ranks"])["efficiency"]
    assert efficiency["ddp", 4] > 1.9 * efficiency["horovod", 4]


def test_a_run_that_is_a_point_of_both_scalings_is_on_both_curves(simulation):
    """Four ranks with 16 images each are 64 in all, as strong scaling has them."""
    rows = [
        made_measurement(300, ranks=4, batch_size_per_rank=16, alone=(100, 100)),
        made_measurement(150, ranks=2, batch_size_per_rank=32, scaling="strong", alone=(80, 80)),
        made_measurement(400, ranks=8, batch_size_per_rank=8, scaling="strong", alone=(125, 125)),
        made_measurement(170, ranks=2, batch_size_per_rank=16, alone=(100, 100)),
    ]
    cells = study.cells(completed(rows, simulation)).set_index(["scaling", "ranks"])
    assert cells.index.tolist() == [("strong", 2), ("strong", 4), ("strong", 8), ("weak", 2), ("weak", 4)]
    assert cells.loc[("weak", 4), "efficiency"] == pytest.approx(300 / (4 * 100))
    # Of 64 images at once, one rank did 80 and 125 a second in the launches that had it: 100 in the geometric mean.
    assert cells.loc[("strong", 4), "efficiency"] == pytest.approx(300 / (4 * 100))
    assert cells.index[cells["shared"]].tolist() == [("strong", 4)]


def test_a_point_that_was_measured_for_either_scaling_stays_as_it_was_measured(simulation):
    rows = [
        made_measurement(
            speed, ranks=ranks, batch_size_per_rank=64 // ranks if scaling == "strong" else 16, scaling=scaling
        )
        for scaling, ranks, speed in (("weak", 4, 300), ("strong", 4, 280), ("strong", 1, 100), ("weak", 1, 90))
    ]
    cells = study.cells(completed(rows, simulation)).set_index(["scaling", "ranks"])
    assert cells["images_per_second"].to_dict() == pytest.approx(
        {("strong", 1): 100, ("strong", 4): 280, ("weak", 1): 90, ("weak", 4): 300}
    )


def test_a_setting_is_compared_with_the_defaults_of_its_repetition(simulation):
    rows = made_measurements(loses)
    rows += [
        made_measurement(
            1.1 * loses("horovod", 4, repeat), library="horovod", ranks=4, repeat=repeat, cycle_time_ms=25.0
        )
        for repeat in range(3)
    ]
    table = study.tuned(completed(rows, simulation))
    measured = table[table["source"] == "measured"].set_index("setting")
    assert measured.loc["cycle 25 ms, fusion 128 MiB", "ratio"] == pytest.approx(1.1)
    assert measured.loc["cycle 1 ms, fusion 128 MiB", "ratio"] == pytest.approx(1)
    simulated = table[table["source"] == "simulated"].set_index("setting")
    # The defaults of the simulated version are 5 ms and 64 MiB.
    assert simulated.loc["cycle 5 ms, fusion 64 MiB", "ratio"] == pytest.approx(1)


def test_only_the_curve_without_a_cache_bends(simulation):
    ds = completed([made_measurement()], simulation)
    assert 400 < study.bend(ds, study.UNCACHED) < 2000
    assert np.isnan(study.bend(ds, study.OF_ITS_TIME))
    assert np.isnan(study.bend(ds, study.DDP))


def test_switching_nothing_off_gains_nothing(simulation):
    table = study.ablation(completed([made_measurement()], simulation))
    assert (table.loc[table["switched_off"] == "none", "gained"] == 0).all()
    assert table["gained"].max() > 0.1


def test_narrowing_keeps_every_simulated_row(simulation):
    ds = completed(made_measurements(loses), simulation)
    narrowed = study.narrow(ds, ranks=[1, 2])
    assert set(study.cells(narrowed)["ranks"]) == {1, 2}
    assert len(study.rows(narrowed, "simulated")) == simulation.sizes["run"]


# Over links


def over_links(library, hosts, rate, repeat):
    """Slow links halve the throughput of DDP and take three quarters of Horovod's; repetitions differ a little."""
    kept = 1.0 if np.isinf(rate) else {"ddp": 0.5, "horovod": 0.25}[library]
    return 100 * hosts * kept * (1 + 0.01 * repeat)


def test_runs_over_links_are_no_part_of_what_was_measured_over_loopback(simulation):
    alone = completed(made_measurements(loses), simulation)
    linked = [row for row in made_linked(over_links, hosts=(2, 8)) if row["hosts"].item() > 1]
    both = completed([*made_measurements(loses), *linked], simulation)
    for of in (study.cells, study.gaps, study.tuned):
        pd.testing.assert_frame_equal(of(both), of(alone))
