"""Verdicts on scaling: G18, G21, M8, J1, from measured rows whose answer is known and the simulated ones."""

import pytest
from made_scaling import made_linked, made_measurement, made_measurements, small_simulation

from dolb import claims
from dolb.profiling import scaling_sweep
from dolb.summary import ddp_vs_horovod as study


@pytest.fixture(scope="module")
def every_claim(repo_root):
    return claims.load(repo_root / "book" / "claims.yml")[1]


@pytest.fixture(scope="module")
def simulation():
    return small_simulation()


def verdicts(every_claim, measured, simulation):
    ds = scaling_sweep.complete(measured, simulation)
    return claims.judge(every_claim, {"ddp-vs-horovod": ds})


def scaled(ddp, horovod):
    """Throughput of 100 images a second and rank, times an efficiency on several ranks that varies a little."""

    def speed(library, ranks, repeat):
        return 100.0 * ranks * ({"ddp": ddp, "horovod": horovod}[library] + 0.001 * repeat if ranks > 1 else 1)

    return made_measurements(speed)


def test_every_verdict_that_rests_on_simulation_says_so(every_claim, simulation):
    judged = verdicts(every_claim, scaled(0.95, 0.80), simulation)
    for name in ("G18", "G21", "M8"):
        assert "In simulation" in judged[name].ours


def test_the_order_holds_and_the_bend_does_not_so_g18_is_mixed(every_claim, simulation):
    """Horovod as it came has a response cache, and with it the simulated curve does not bend."""
    found = verdicts(every_claim, scaled(0.95, 0.80), simulation)["G18"]
    assert found.outcome == "mixed"
    assert "Horovod 0.20 does not bend; without its response cache it bends" in found.ours
    assert "100% of the draws" in found.ours
    assert "weak scaling, 1.19" in found.ours  # 0.95 / 0.80


def test_g18_says_how_far_ddp_leads_and_how_efficient_horovod_is_where_it_bends(every_claim, simulation):
    told = verdicts(every_claim, scaled(0.95, 0.80), simulation)["G18"].ours
    lines = study.curves(simulation).set_index(["variant", "ranks"])["efficiency"]
    bent = study.bend(simulation, study.UNCACHED)
    assert f"leads Horovod 0.20 by {100 * (lines['DDP', 1536] - lines['Horovod 0.20', 1536]):+.1f} points" in told
    assert f"{lines[study.UNCACHED, bent]:.0%}, to {lines[study.UNCACHED, 1536]:.0%} at 1,536" in told
    assert "not the model" in told


def test_what_links_show_is_told_beside_g18_and_does_not_decide_it(every_claim, simulation):
    without = verdicts(every_claim, scaled(0.95, 0.80), simulation)["G18"]
    rows = made_linked(lambda library, *_: 200.0 * (0.5 if library == "ddp" else 0.8), repeats=1)
    linked = [row for row in rows if row["hosts"].item() > 1]
    found = verdicts(every_claim, [*scaled(0.95, 0.80), *linked], simulation)["G18"]
    assert found.outcome == without.outcome
    assert found.ours == (
        f"{without.ours} Over rate-limited links between 2 hosts on one machine: smallnet-8 at 100 Mbit/s 0.62; "
        "smallnet-8 at no limit 0.62."
    )


def test_a_single_measurement_is_told_without_an_interval(every_claim, simulation):
    rows = made_measurements(lambda library, ranks, repeat: 100.0 * ranks, repeats=1)
    assert "nan" not in verdicts(every_claim, rows, simulation)["G18"].ours


def tuned(gain):
    return [
        made_measurement(
            100.0 * 4 * 0.8 * gain * (1 + 0.001 * repeat), library="horovod", ranks=4, repeat=repeat, cycle_time_ms=25.0
        )
        for repeat in range(3)
    ]


@pytest.mark.parametrize(("gain", "expected"), [(1.01, "replicated"), (1.5, "mixed")])
def test_a_small_gain_by_tuning_is_marginal_and_a_large_one_is_not(every_claim, simulation, gain, expected):
    found = verdicts(every_claim, [*scaled(0.9, 0.8), *tuned(gain)], simulation)["G21"]
    assert found.outcome == expected


def test_the_ring_is_replicated(every_claim, simulation):
    found = verdicts(every_claim, scaled(0.9, 0.8), simulation)["M8"]
    assert found.outcome == "replicated"
    assert "64 ranks 126" in found.ours  # 2 (64 - 1)


@pytest.mark.parametrize(("ddp", "expected"), [(0.9, "replicated"), (1.2, "mixed")])
def test_the_ideal_is_one_that_no_cell_exceeds(every_claim, simulation, ddp, expected):
    assert verdicts(every_claim, scaled(ddp, 0.8), simulation)["J1"].outcome == expected


def test_without_repetitions_the_ideal_waits(every_claim, simulation):
    rows = made_measurements(lambda library, ranks, repeat: 100.0 * ranks, repeats=1)
    assert verdicts(every_claim, rows, simulation)["J1"].outcome == "not yet measured"


def test_one_cell_that_tells_among_many_that_do_not_is_too_little_for_the_ideal(every_claim, simulation):
    """Of four cells of several ranks one was repeated alike; the others' repetitions differ twofold."""

    def speed(library, ranks, repeat):
        return 100.0 * ranks * (0.8 if ranks == 1 or (library, ranks) == ("ddp", 2) else 0.5 * (1 + repeat))

    found = verdicts(every_claim, made_measurements(speed), simulation)["J1"]
    assert found.outcome == "not yet measured"
    assert "; 1 of " in found.reason
