"""The simulator's fits: known numbers are found again, halves are balanced, and what was not fitted judges."""

import numpy as np
import pytest
from made_scaling import made_linked, made_measurement, made_measurements

from dolb import results
from dolb.profiling.ranks import sweep
from dolb.profiling.simulator import fit, network
from dolb.profiling.simulator.curves import turn
from dolb.profiling.simulator.libraries import GLOO_THREADS
from dolb.profiling.simulator.step import events, simulate

ROW = {
    "arch": "resnet18", "data": "cifar10", "batch_size_per_rank": 16, "bucket_mb": 25.0, "fusion_threshold_mb": 128.0,
    "cycle_time_ms": 1.0, "images_per_second_alone": 100.0,
}  # fmt: skip


def errors(points, used="judge"):
    return points.loc[points["used"] == used, "error"].abs()


# Published points


@pytest.fixture(scope="module")
def published():
    return fit.published()


def test_a_published_point_says_where_it_is_from_and_how_it_was_read(published):
    assert len(published) >= 15
    assert published["key"].is_unique
    assert set(published["read"]) <= {"text", "table", "figure", "memory"}
    assert published[["paper", "where", "library", "alone_from"]].notna().all(axis=None)
    assert published["efficiency"].between(0, 1).all()


def test_every_third_point_by_key_fits_and_the_others_judge(published):
    assert published["key"].tolist() == sorted(published["key"])
    assert published["used"].tolist() == (["fit", "judge", "judge"] * len(published))[: len(published)]


def test_points_that_judge_are_met_within_a_few_percent(published):
    judged = errors(published)
    assert judged.median() < 0.04
    assert (judged**2).mean() < 0.06**2
    assert judged.max() < 0.15
    assert (judged**2).mean() < (published.loc[published["used"] == "judge", "guessed"] ** 2).mean()


@pytest.mark.parametrize("name", list(network.FITTED))
def test_no_other_value_fits_the_points_better_that_are_there_to_fit(name):
    points = fit.published_points().query("used == 'fit'").to_dict("records")

    def off(value):
        found = [fit.published_efficiency(row, fit.published_scenario(row), {name: value}) for row in points]
        return sum(np.log(np.array(found) / [row["efficiency"] for row in points]) ** 2)

    known = network.FITTED[name]
    assert off(known) <= 1.002 * min(off(0.7 * known), off(1.4 * known))


# One machine


def scenario(library="ddp", **changes):
    return fit._scenario(ROW | {"library": library} | changes)


def step(library, ranks, **knobs):
    return simulate(fit.on_machine(scenario(library), knobs), ranks).step_seconds


@pytest.mark.parametrize("optimizer", [0.0, 1e-9, 1.0])
def test_a_rank_alone_takes_as_long_as_measured_however_much_of_it_is_the_optimizer(optimizer):
    assert step("ddp", 1, optimizer=optimizer) == pytest.approx(16 / 100.0)


@pytest.mark.parametrize(("knob", "value"), [("horovod_hops", 5.0), ("horovod_cycle", 0.01)])
def test_what_slows_the_thread_of_horovod_does_not_slow_ddp(knob, value):
    assert step("horovod", 16, **{knob: value}) > step("horovod", 16)
    assert step("ddp", 16, **{knob: value}) == step("ddp", 16)


def at_once(step, rank=0):
    """Count the collectives that run on a rank when each of its collectives begins, itself included."""
    mine = step[(step["lane"] == "communication") & (step["rank"] == rank)]
    start, end = mine["start_us"].to_numpy(), mine["end_us"].to_numpy()
    return [int(((start <= moment) & (moment < end)).sum()) for moment in start]


def test_as_many_buckets_are_reduced_at_once_as_gloo_was_seen_to():
    traced = [
        max(at_once(run.drop_dims(set(run.dims) - {"event"}).to_dataframe()))
        for run in results.split(results.published("step-timeline"))
        if (run["variant"].item(), run["source"].item()) == ("DDP", "measured")
    ]
    assert max(traced) == GLOO_THREADS  # where a bucket is ready before the one before it is reduced
    simulated = events(fit.on_machine(scenario(bucket_mb=1.0), {"hop_seconds": 1e-3}), 4)
    assert max(at_once(simulated)) == GLOO_THREADS


@pytest.fixture(scope="module")
def measured_here():
    return results.published("ddp-vs-horovod")


def test_halves_are_balanced_in_networks_libraries_and_ranks(measured_here):
    points = fit.machine_points(measured_here)
    drawn = list(fit.halves(points, fit.HALVES))
    assert len({tuple(half) for half in drawn}) == fit.HALVES
    for half in drawn:
        chosen = points.assign(fit=half)
        counts = chosen.groupby(["arch", "library"])["fit"].agg(["sum", "size"])
        assert ((2 * counts["sum"] - counts["size"]).abs() <= 1).all()
        both = chosen.groupby(["library", "ranks"])["fit"].agg(["min", "max"])
        assert not both["min"].any()
        assert both["max"].all()


def test_runs_are_given_what_the_simulator_says_of_them_when_it_was_not_fitted_to_them():
    """Of two points each half has one, which is enough to find one knob again."""
    known = {"hop_seconds": 3e-4}

    def speed(library, ranks, repeat):
        setup = scenario(library, arch="smallnet-8", data="digits")
        return simulate(fit.on_machine(setup, known), ranks).images_per_second if ranks > 1 else 100.0

    same = {"batch_size_per_rank": 16, "data": "digits"}
    runs = results.merge(made_measurements(speed, (1, 2, 4), 1, libraries=("ddp",), **same))
    ds, points = fit.with_judged(runs), fit.machine(runs)
    assert errors(points).max() < 0.02
    points = points[(points["used"] == "judge") & (points["ranks"] == 4)]
    given = ds["judged_images_per_second"].to_numpy()
    assert np.isnan(given[ds["ranks"] == 1]).all()
    assert given[ds["ranks"] == 4] == pytest.approx(np.exp(np.log(points["simulated"]).mean()))


def test_one_point_can_not_be_halved_and_judges_nothing():
    one = results.merge(made_measurements(lambda *_: 100.0, (1, 2), 1, libraries=("ddp",)))
    assert np.isnan(fit.with_judged(one)["judged_images_per_second"]).all()


def test_a_rank_alone_is_the_one_without_a_library():
    runs = made_measurements(lambda library, ranks, repeat: 80.0 * ranks, repeats=1, alone=(90.0, 160.0))
    points = fit.machine_points(results.merge(runs))
    assert points["images_per_second_alone"].to_numpy() == pytest.approx(120.0)  # the geometric mean


# Over links

ALONE = 40.0  # images a second of one rank
SLOWER = {"ddp": 1.3, "horovod": 1.6}  # side by side


def by_the_simulator(library, hosts, rate, repeat):
    """Throughput as the simulator has it, with ranks that are slower side by side by a factor that is known."""
    if hosts == 1:
        return ALONE
    row = made_measurement(library=library, ranks=hosts, hosts=hosts, link_mbit=rate, arch="resnet18").to_dataframe()
    link = {"achieved_mbit": 0.9 * rate if np.isfinite(rate) else 20_000.0, "link_latency_seconds": 25e-6}
    point = {**row.reset_index().iloc[0], **link, "images_per_second_alone": ALONE}
    return simulate(turn(fit.links_scenario(point), {"compute": SLOWER[library]}), hosts).images_per_second


@pytest.fixture(scope="module")
def over_links():
    """Runs over links; what one rank did alone drifts from launch to launch, about the same mean."""
    drift = {100.0: 2.0, 1000.0: 0.5, np.inf: 1.0}
    rows = made_linked(
        by_the_simulator, hosts=(2, 4), rates=tuple(drift), alone=lambda rate, _: (ALONE * drift[rate],) * 2,
        arch="resnet18",
    )  # fmt: skip
    return sweep.with_efficiency(results.merge(rows))


@pytest.fixture(scope="module")
def judged_links(over_links):
    return fit.links(over_links)


def test_how_much_slower_ranks_compute_is_found_on_the_fastest_link_and_slower_links_judge(judged_links):
    points = judged_links
    assert points["compute"].to_numpy() == pytest.approx(points["library"].map(SLOWER).to_numpy(), rel=0.02)
    assert set(points.loc[points["used"] == "judge", "link_mbit"]) == {100.0, 1000.0}
    assert errors(points).max() < 0.02


def test_a_link_that_is_slower_than_it_was_measured_shows_as_an_error(over_links):
    slow = over_links["link_mbit"] == 100.0
    speed = over_links["images_per_second"]
    found = fit.links(over_links.assign(images_per_second=speed.where(~slow, speed / 2)))
    assert errors(found).max() == pytest.approx(1, abs=0.05)


def test_the_curve_goes_through_the_fitted_point_and_rises_with_bandwidth(judged_links):
    curve, points = fit.links_curve(judged_links, count=5), judged_links
    assert len(curve) == 4 * 5
    for (hosts, library), line in curve.groupby(["hosts", "library"]):
        assert line["efficiency"].is_monotonic_increasing
        at_top = points[(points["hosts"] == hosts) & (points["library"] == library) & np.isinf(points["link_mbit"])]
        measured = at_top["images_per_second"].item()
        assert line["efficiency"].iloc[-1] == pytest.approx(measured / (hosts * ALONE), rel=0.02)


def test_what_was_measured_at_one_rate_only_is_neither_fitted_nor_drawn(over_links):
    few = over_links.isel(run=np.flatnonzero((over_links["hosts"] == 1) | (over_links["link_mbit"] == 100.0)))
    found = fit.links(few)
    assert set(fit.links_points(few)["hosts"]) == {2, 4}
    assert found.empty
    assert fit.links_curve(found).empty
