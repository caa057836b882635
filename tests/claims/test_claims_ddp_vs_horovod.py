"""Verdicts on scaling: G18, G21, M8, J1, from measured rows whose answer is known and the simulated ones."""

import numpy as np
import pytest
from made_scaling import completed, made_linked, made_measurement, made_measurements, small_simulation
from scipy import stats

from dolb import claims
from dolb.claims import ddp_vs_horovod as judges
from dolb.findings import ddp_vs_horovod as study
from dolb.findings import simulated_lead


@pytest.fixture(scope="module")
def every_claim(repo_root):
    return claims.load(repo_root / "book" / "claims.yml")[1]


@pytest.fixture(scope="module")
def simulation():
    return small_simulation()


def verdicts(every_claim, measured, simulation):
    ds = completed(measured, simulation)
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
    assert "Horovod 0.20 does not bend, by its line or in the draws. Without its response cache it bends" in found.ours
    assert "100% of the draws" in found.ours
    assert "smallnet-8 1.19" in found.ours  # 0.95 / 0.80
    assert "DDP ahead on 4 ranks, measured: yes." in found.ours


def test_g18_is_not_replicated_where_no_part_holds_and_one_does_not(every_claim, simulation):
    """The libraries are alike, so that neither order is told, and Horovod as it came does not bend."""
    alike = made_measurements(
        lambda library, ranks, repeat: 100.0 * ranks * (1 + (library == "ddp") * (repeat - 1) / 10)
    )
    ds = completed(alike, simulation)
    assert [part.holds for part in judges.parts(ds)] == [None, False, None]
    assert claims.judge(every_claim, {"ddp-vs-horovod": ds})["G18"].outcome == "not replicated"
    assert judges.parts_table(ds)["holds"].tolist() == ["cannot be told", "no", "cannot be told"]


def test_strong_scaling_is_told_beside_g18_and_does_not_decide_it(every_claim, simulation):
    behind = [
        made_measurement(
            100.0 * (0.5 if library == "ddp" else 1) * (1 + 0.001 * repeat),
            library=library, ranks=4, repeat=repeat, scaling="strong", batch_size_per_rank=8,
        )
        for repeat in range(3)
        for library in ("ddp", "horovod")
    ]  # fmt: skip
    without, found = (judges.parts(completed([*scaled(0.95, 0.80), *more], simulation))[2] for more in ([], behind))
    assert found.holds is without.holds is True
    assert "Under strong scaling, which decides nothing: smallnet-8 0.50" in found.more
    assert "strong" not in without.more


def test_g18_says_how_far_ddp_leads_and_how_efficient_horovod_is_where_it_bends(every_claim, simulation):
    told = verdicts(every_claim, scaled(0.95, 0.80), simulation)["G18"].ours
    lines = study.curves(simulation).set_index(["variant", "ranks"])["efficiency"]
    bent = study.bend(simulation, study.UNCACHED)
    assert f"leads Horovod 0.20 by {100 * (lines['DDP', 1536] - lines['Horovod 0.20', 1536]):+.1f} points" in told
    assert f"{lines[study.UNCACHED, bent]:.0%}, to {lines[study.UNCACHED, 1536]:.0%} at 1,536" in told
    assert "not the model" in told


def test_a_bend_is_told_with_its_range_over_the_draws(every_claim, simulation):
    told = verdicts(every_claim, scaled(0.95, 0.80), simulation)["G18"].ours
    low, high = study.bend_range(simulation, study.UNCACHED)
    assert low < study.bend(simulation, study.UNCACHED) < high
    bent = round(study.bend(simulation, study.UNCACHED), -1)
    assert (
        f"about {bent:,.0f} GPUs on ({round(low, -1):,.0f} to {round(high, -1):,.0f} in the middle nine tenths" in told
    )


@pytest.mark.parametrize(
    ("low", "high", "holds"),
    [
        (600.0, 1800.0, True),
        (300.0, 1800.0, None),
        (600.0, np.inf, None),
        (3000.0, 9000.0, False),
        (np.inf, np.inf, False),
    ],
)
def test_a_bend_near_1000_is_one_in_the_draws_too(simulation, low, high, holds):
    count = simulation.sizes["run"]
    ds = simulation.assign(bend_low=("run", np.full(count, low)), bend_high=("run", np.full(count, high)))
    assert judges._bends_near_1000(ds, study.UNCACHED) is holds


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


def test_intervals_over_links_are_widened_for_their_number_and_say_so(simulation):
    rows = made_linked(lambda library, _, rate, repeat: 200.0 + repeat * (1 if library == "ddp" else 2))
    linked = [row for row in rows if row["hosts"].item() > 1]
    more = judges.parts(completed([*scaled(0.95, 0.80), *linked], simulation))[2].more
    assert "hosts on one machine (widened for 2 comparisons): smallnet-8 at 100 Mbit/s" in more


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


def test_the_ring_is_counted_and_cannot_be_tested_as_it_cannot_fail(every_claim, simulation):
    found = verdicts(every_claim, scaled(0.9, 0.8), simulation)["M8"]
    assert found.outcome == "not testable here"
    assert "64 ranks 126" in found.ours  # 2 (64 - 1)
    assert "checks a definition and cannot fail" in found.ours  # what page 11 shows
    assert "the messages of a library" in found.reason


@pytest.mark.parametrize(("ddp", "expected"), [(0.9, "replicated"), (1.2, "mixed")])
def test_the_ideal_is_one_that_no_cell_exceeds(every_claim, simulation, ddp, expected):
    assert verdicts(every_claim, scaled(ddp, 0.8), simulation)["J1"].outcome == expected


def test_without_repetitions_the_ideal_waits(every_claim, simulation):
    rows = made_measurements(lambda library, ranks, repeat: 100.0 * ranks, repeats=1)
    assert verdicts(every_claim, rows, simulation)["J1"].outcome == "not yet measured"


def test_repetitions_that_differ_twofold_are_too_little_for_the_ideal(every_claim, simulation):
    def speed(library, ranks, repeat):
        return 100.0 * ranks * (0.8 if ranks == 1 else 0.5 * (1 + repeat))

    found = verdicts(every_claim, made_measurements(speed), simulation)["J1"]
    assert found.outcome == "not yet measured"
    assert "a factor of 2 apart" in found.reason
    assert "; 0 of 4 have one" in found.reason


def varied(factor, levels):
    """Efficiencies by library; repetitions of several ranks differ by a factor up and down."""
    return made_measurements(
        lambda library, ranks, repeat: 100.0 * ranks * (levels[library] * factor ** (repeat - 1) if ranks > 1 else 1)
    )


def test_whether_an_efficiency_tells_does_not_depend_on_how_large_it_is(every_claim, simulation):
    """The same factor of 1.1 between repetitions of efficiencies near 100% and of tiny ones."""
    found = verdicts(every_claim, varied(1.1, {"ddp": 0.98, "horovod": 0.02}), simulation)["J1"]
    assert "4 of 4 cells" in found.ours
    assert "No further cell was left out" in found.ours


def test_cells_that_do_not_tell_are_left_out_and_counted(every_claim, simulation):
    """Of 8 ranks DDP was measured once, which is too few where repetitions differ by a factor of 1.25."""
    rows = [*varied(1.25, {"ddp": 0.7, "horovod": 0.7}), made_measurement(500.0, ranks=8)]
    found = verdicts(every_claim, rows, simulation)["J1"]
    assert "4 of 4 cells" in found.ours
    assert "1 further cell was left out" in found.ours


def test_a_run_of_both_scalings_counts_once_for_the_ideal(every_claim, simulation):
    rows = [
        made_measurement(
            speed * (1 + 0.01 * repeat), ranks=ranks, repeat=repeat, batch_size_per_rank=per_rank, scaling=scaling
        )
        for repeat in range(2)
        for speed, ranks, per_rank, scaling in (
            (100.0, 1, 16, "weak"),
            (300.0, 4, 16, "weak"),
            (120.0, 1, 64, "strong"),
            (200.0, 2, 32, "strong"),
        )
    ]
    assert "2 of 2 cells" in verdicts(every_claim, rows, simulation)["J1"].ours  # 4 ranks are on both curves


# The rules of G21


def settings(*gains, repeats=3):
    """Settings of Horovod on 4 ranks with these gains over the defaults in the same repetition."""
    return [
        made_measurement(
            320.0 * (1 + 0.00125 * repeat) * gain, library="horovod", ranks=4, repeat=repeat, cycle_time_ms=25.0 + k
        )
        for repeat in range(repeats)
        for k, gain in enumerate(gains)
    ]


@pytest.mark.parametrize(
    ("gains", "noise", "holds"),
    [
        ((0.8, 0.9), 0.001, True),  # all settings are worse, surely
        ((0.8, 0.9), 0.5, None),  # all are worse in the mean, and may be better by far
        ((0.8, 1.04), 0.001, True),
        ((0.8, 1.2), 0.001, False),
        ((0.8, 1.05), 0.01, None),
    ],
)
def test_tuning_is_marginal_if_all_intervals_of_settings_tried_are_below_the_margin(simulation, gains, noise, holds):
    """Horovod's repetitions are alike; DDP's differ, and with them the spread of ratios."""

    def speed(library, ranks, repeat):
        return 80.0 * ranks * (1 + (noise if library == "ddp" else 0.00125) * repeat)

    ds = completed([*made_measurements(speed), *settings(*gains)], simulation)
    table = study.tuned(ds)
    tried = table[(table["source"] == "measured") & (table["library"] == "horovod") & ~table["default"].astype(bool)]
    assert len(tried) == len(gains)
    found, told = judges._measured_tuning(tried)
    assert found is holds
    assert f"{len(gains)} settings other than the defaults" in told


def test_intervals_of_settings_are_widened_for_their_number(simulation):
    """One setting alone is told to gain more than the margin; as one of ten it is not."""

    def speed(library, ranks, repeat):
        return 80.0 * ranks * (1 + (0.015 if library == "ddp" else 0.00125) * repeat)

    def judged(*gains):
        table = study.tuned(completed([*made_measurements(speed), *settings(*gains)], simulation))
        tried = (table["source"] == "measured") & (table["library"] == "horovod") & ~table["default"].astype(bool)
        return judges._measured_tuning(table[tried].iloc[-1:])[0], judges._measured_tuning(table[tried])[0]

    # The libraries' ratio has 2 x 2 degrees of freedom and a standard error of 0.8%, so that the interval of a setting
    # reaches 2.2% alone and 4.4% of ten; 8% is 2.9% above the margin.
    assert judged(*[1.0] * 9, 1.08) == (False, None)


def test_simulated_settings_that_tie_are_all_named_and_the_default_is_none_of_them(every_claim, simulation):
    told = verdicts(every_claim, scaled(0.9, 0.8), simulation)["G21"].ours
    simulated = study.tuned(simulation)
    assert f"the best of {len(simulated) - 1} settings other than the defaults" in told
    best = simulated.loc[simulated["ratio"] > simulated["ratio"].max() * (1 - 1e-4), "setting"]
    assert f"({'; '.join(best)}; these {len(best)} do not differ)" in told


# The rules of G18


def bending(simulation, lead):
    """The curves with Horovod as it bends without a cache, near 1000 in all draws, and with DDP's lead as given."""
    made = simulation.copy(deep=True)
    variant, efficiency = made["variant"].to_numpy(), made["efficiency"].to_numpy().copy()
    curve = (made["efficiency_low"].notnull()).to_numpy()
    efficiency[curve & (variant == study.OF_ITS_TIME)] = efficiency[curve & (variant == study.UNCACHED)]
    every = np.ones(made.sizes["run"])
    return made.assign(
        efficiency=("run", efficiency),
        bend_low=("run", 600 * every),
        bend_high=("run", 1600 * every),
        ddp_lead_low=("run", (lead - 0.01) * every),
        ddp_lead_high=("run", (lead + 0.01) * every),
    )


def judged(ds, off):
    """Give measured runs what a simulator says that is off by a factor in DDP's throughput and right in Horovod's."""
    factor = np.where(ds["library"] == "ddp", off, 1.0)
    measured = np.where(ds["source"] == "measured", factor * ds["images_per_second"], np.nan)
    return ds.assign(judged_images_per_second=("run", measured))


@pytest.mark.parametrize(
    ("lead", "off", "expected"),
    [
        (1.3, 1.02, "replicated"),  # Student's quantile of two pairs is 2.9: 1.02 to this power is 1.06
        (1.05, 1.02, "mixed"),
        (1.3, 1.2, "mixed"),
        (1.3, None, "mixed"),
    ],
)
def test_a_simulated_lead_counts_only_if_it_is_wider_than_the_model_is_off(
    every_claim, simulation, lead, off, expected
):
    ds = completed(scaled(0.95, 0.80), bending(simulation, lead))
    found = claims.judge(every_claim, {"ddp-vs-horovod": judged(ds, off) if off else ds})["G18"]
    assert found.outcome == expected
    assert ("so the order is not told" in found.ours) is (expected == "mixed" and off is not None)
    assert ("is not known, as no pair of runs here judges it" in found.ours) is (off is None)


def test_the_model_is_off_by_what_it_is_in_the_ratio_of_the_libraries(simulation):
    ds = completed(scaled(0.95, 0.80), simulation)
    found = simulated_lead.model_error(judged(ds, 1.1))
    assert found == (pytest.approx(np.log(1.1)), 2)  # on 2 and on 4 ranks
    slow = ds.assign(judged_images_per_second=0.5 * ds["images_per_second"])  # both libraries alike
    assert simulated_lead.model_error(slow).log == pytest.approx(0)


def test_a_lead_is_widened_by_student_s_quantile_of_the_model_s_error(simulation):
    ds = judged(completed(scaled(0.95, 0.80), bending(simulation, 1.3)), 1.1)
    reach = 1.1 ** stats.t.ppf(0.95, 2)
    found = simulated_lead.lead(ds, study.OF_ITS_TIME, judges.STUDIED)
    assert found == pytest.approx((1.29, 1.31, 1.29 / reach, 1.31 * reach))


@pytest.mark.parametrize(
    ("resnet18", "vgg11", "holds"),
    [(1.2, 1.2, True), (1.2, 1.0, None), (1.2, 0.8, False), (1.0, 0.8, False), (1.0, 1.0, None)],
)
def test_a_measured_cell_that_contradicts_is_not_hidden_by_others(simulation, resnet18, vgg11, holds):
    rows = [
        row
        for arch, lead in (("resnet18", resnet18), ("vgg11", vgg11))
        for row in made_measurements(
            lambda library, ranks, repeat, lead=lead: (
                100.0 * ranks * (lead + 0.01 * (repeat - 1) if library == "ddp" else 1)
            ),
            arch=arch,
        )
    ]
    assert judges.parts(completed(rows, simulation))[2].holds is holds
