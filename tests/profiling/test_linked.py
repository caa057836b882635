"""The simulator over measured links: what was measured is used as it is, what is fitted is found again."""

import numpy as np
import pytest
from made_scaling import made_linked, made_measurement

from dolb import results
from dolb.profiling.ranks import sweep
from dolb.profiling.simulator import linked, network
from dolb.profiling.simulator.scaling import turn
from dolb.profiling.simulator.step import simulate

ALONE = 40.0  # images a second of one rank
SLOWER = {"ddp": 1.3, "horovod": 1.6}  # side by side


def by_the_simulator(library, hosts, rate, repeat):
    """Throughput as the simulator has it, with ranks that are slower side by side by a factor that is known."""
    if hosts == 1:
        return ALONE
    row = made_measurement(
        1.0, library=library, ranks=hosts, hosts=hosts, link_mbit=rate, arch="resnet18"
    ).to_dataframe()
    link = {"achieved_mbit": 0.9 * rate if np.isfinite(rate) else 20_000.0, "link_latency_seconds": 25e-6}
    point = {**row.reset_index().iloc[0], **link, "images_per_second_alone": ALONE}
    return simulate(turn(linked.scenario(point), {"compute": SLOWER[library]}), hosts).images_per_second


@pytest.fixture(scope="module")
def ds():
    rows = made_linked(by_the_simulator, hosts=(2, 4), rates=(100.0, 1000.0, np.inf), arch="resnet18")
    return results.merge(rows)


@pytest.fixture(scope="module")
def found(ds):
    return linked.judge(ds)


def test_a_point_is_simulated_with_the_latency_and_bandwidth_of_its_link(ds):
    row = linked.points(ds).iloc[0]
    over = linked.scenario(row).network
    assert (over.inter.latency, over.inter.bandwidth) == pytest.approx((25e-6, 90e6 / 8))
    # A ring of two sends the whole buffer over a link, in two steps.
    assert over.allreduce_seconds(2, 90e6 / 8) == pytest.approx(1 + 2 * 25e-6)


def test_how_much_slower_ranks_compute_is_found_again_on_the_fastest_link(found):
    assert len(found.knobs) == 4  # two libraries on two and on four hosts
    for name, factor in found.knobs.items():
        assert factor == pytest.approx(SLOWER[name.rsplit(", ")[-1]], rel=0.02)


def test_slower_links_judge(found):
    assert set(found.points.loc[found.points["used"] == "judge", "link_mbit"]) == {100.0, 1000.0}
    assert found.worst("judge") < 0.02


def test_a_link_that_is_slower_than_it_was_measured_shows_as_an_error(ds):
    slow = ds["link_mbit"] == 100.0
    half = ds.assign(images_per_second=ds["images_per_second"].where(~slow, ds["images_per_second"] / 2))
    assert linked.judge(half).worst("judge") == pytest.approx(1, abs=0.05)


def test_the_curve_goes_through_the_fitted_point_and_rises_with_bandwidth(found):
    curve = linked.curve(found, count=5)
    assert len(curve) == 4 * 5
    for (arch, hosts, library), line in curve.groupby(["arch", "hosts", "library"]):
        assert line["images_per_second"].is_monotonic_increasing
        points = found.points
        at_top = points[(points["hosts"] == hosts) & (points["library"] == library) & np.isinf(points["link_mbit"])]
        assert line["images_per_second"].iloc[-1] == pytest.approx(at_top["measured"].item(), rel=0.02)
        assert line["efficiency"].iloc[-1] == pytest.approx(at_top["measured"].item() / (hosts * ALONE), rel=0.02)
        assert arch == "resnet18"


@pytest.fixture(scope="module")
def beside():
    """Measurements with one rank without a library in every launch, twice as fast as under one; runs drift apart."""
    rows = made_linked(
        lambda *at: by_the_simulator(*at) * (4.0 if at[-1] else 1.0),
        rates=(100.0, np.inf),
        alone=lambda rate, repeat: (ALONE, 4 * ALONE) if repeat else (2 * ALONE, 2 * ALONE),
        arch="resnet18",
    )
    return sweep.with_efficiency(results.merge(rows))


def test_one_rank_without_a_library_is_the_one_compared_with_where_it_was_measured(beside):
    assert linked.points(beside)["images_per_second_alone"].tolist() == pytest.approx([2 * ALONE] * 4)


def test_means_over_repetitions_are_geometric(beside):
    point = linked.points(beside).query("library == 'ddp' and link_mbit == 100").iloc[0]
    once = by_the_simulator("ddp", 2, 100.0, 0)
    assert point["images_per_second"] == pytest.approx(np.sqrt(once * 4 * once))


def test_the_curve_and_the_marks_have_one_baseline(beside):
    top = linked.curve(linked.judge(beside), count=2).groupby("library").last()["efficiency"]
    for library, efficiency in top.items():
        marks = (beside["library"] == library) & (beside["hosts"] == 2) & np.isinf(beside["link_mbit"])
        marked = beside["efficiency"].values[marks.values]
        assert efficiency == pytest.approx(np.exp(np.log(marked).mean()), rel=0.02)


def test_a_rank_alone_that_differs_from_launch_to_launch_moves_no_point_of_its_own():
    rates, drift = (100.0, 1000.0, np.inf), {100.0: 2.0, 1000.0: 0.5, np.inf: 1.0}
    speeds = {"rates": rates, "repeats": 1, "arch": "resnet18"}
    noisy = made_linked(by_the_simulator, alone=lambda rate, _: (ALONE * drift[rate], ALONE * drift[rate]), **speeds)
    found = linked.judge(sweep.with_efficiency(results.merge(noisy)))
    assert found.points["images_per_second_alone"].tolist() == pytest.approx([ALONE] * 6)  # 2 by 1/2 by 1
    assert found.worst("judge") < 0.02
    for name, factor in found.knobs.items():
        assert factor == pytest.approx(SLOWER[name.rsplit(", ")[-1]], rel=0.02)


def test_what_was_measured_at_one_rate_only_is_neither_fitted_nor_judged_nor_drawn(ds):
    few = ds.isel(run=np.flatnonzero((ds["hosts"] != 4) | (ds["link_mbit"] == 100.0)))
    found = linked.judge(few)
    assert set(linked.points(few)["hosts"]) == {2, 4}
    assert set(found.points["hosts"]) == {2}
    assert set(found.knobs) == {"compute, resnet18 on 2 hosts, ddp", "compute, resnet18 on 2 hosts, horovod"}
    assert set(linked.curve(found, count=2)["hosts"]) == {2}


def test_where_all_was_measured_at_one_rate_there_is_no_fit_and_no_error(ds):
    found = linked.judge(ds.isel(run=np.flatnonzero((ds["hosts"] == 1) | (ds["link_mbit"] == 100.0))))
    assert found.knobs == {}
    assert found.points.empty
    assert linked.curve(found).empty
    with pytest.raises(ValueError, match="no point was used to 'judge'"):
        found.worst("judge")


def test_without_links_there_is_nothing_to_judge():
    alone = made_measurement(ALONE)
    assert linked.points(alone).empty
    assert linked.points(alone.drop_vars(["hosts", "link_mbit"])).empty  # results from before there were links
    with pytest.raises(ValueError, match=r"nothing was measured over links; `dolb sweep ddp-vs-horovod --part links`"):
        linked.judge(alone)


def test_ranks_of_one_host_pay_no_bandwidth():
    two_hosts = network.linked(0.0, 1e6, ranks_per_host=2)
    assert two_hosts.allreduce_seconds(2, 1e6) == 0
    assert two_hosts.allreduce_seconds(4, 1e6) == pytest.approx(network.ring_bytes(4, 1e6) / 1e6)
