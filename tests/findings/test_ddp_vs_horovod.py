"""Numbers of DDP against Horovod, from throughputs whose answer is known."""

import numpy as np
import pytest
from made_scaling import completed, made_linked, made_measurement, made_measurements, small_simulation

from dolb import results
from dolb.findings import ddp_vs_horovod as study

NOISE = (0.95, 1.0, 1.05)


def measured(lead=1.2, **changes):
    return made_measurements(
        lambda library, ranks, repeat: 90.0 * ranks * NOISE[repeat] * (lead if library == "ddp" else 1.0), **changes
    )


def settings(gains):
    """One rank, and four under Horovod at its defaults and at settings by cycle time: a gain for each repetition."""
    return [
        made_measurement(100.0 * gain, library="horovod", ranks=ranks, cycle_time_ms=cycle, repeat=repeat)
        for cycle, by_repeat in {1.0: (1.0, 1.0, 1.0), **gains}.items()
        for repeat, gain in enumerate(by_repeat)
        for ranks in ((1, 4) if cycle == 1.0 else (4,))
    ]


def test_efficiency_is_throughput_over_that_of_one_rank():
    cells = study.cells(completed(measured(), small_simulation())).query("ranks == 4 and library == 'ddp'")
    assert cells["efficiency"].item() == pytest.approx(1.0)
    assert cells["images_per_second"].item() == pytest.approx(360 * 1.2 * np.prod(NOISE) ** (1 / 3))


def test_libraries_are_compared_within_a_launch_so_that_its_noise_cancels():
    leads = study.leads(completed(measured(), small_simulation()))
    assert leads[["value", "low", "high"]].to_numpy() == pytest.approx(1.2)


def test_all_networks_of_a_launch_are_one_repetition():
    both = [*measured(1.1), *measured(1.3, arch="resnet18")]
    every = study.leads(completed(both, small_simulation())).query("arch == @study.EVERY")
    assert every["value"].to_numpy() == pytest.approx((1.1 * 1.3) ** 0.5)
    assert set(every["n"]) == {3}


def test_without_horovod_there_is_no_lead_and_ddp_still_has_its_cells():
    ds = completed(measured(libraries=("ddp",)), small_simulation())
    assert study.leads(ds).empty
    assert set(study.cells(ds)["library"]) == {"ddp"}


def test_the_defaults_are_one_and_other_settings_are_compared_with_them():
    ds = completed([*measured(), *settings({25.0: (0.5, 0.5, 0.5)})], small_simulation())
    tuned = study.tuned(ds).query("source == 'measured' and library == 'horovod'").set_index("cycle_time_ms")
    assert tuned.loc[1.0, "value"].item() == pytest.approx(1.0)
    assert np.isnan(tuned.loc[1.0, "low"].item())
    assert set(study.tuned(ds)["source"]) == {"measured", "simulated"}


def test_links_have_cells_by_rate_and_none_where_there_are_no_hosts():
    rows = made_linked(lambda library, hosts, rate, repeat: min(rate, 90.0 + repeat) * hosts)
    cells = study.linked_cells(completed([results.merge(rows)], small_simulation()))
    assert set(cells["link_mbit"]) == {100.0, np.inf}
    assert (cells["achieved_mbit"] > 0).all()
    assert study.linked_cells(completed(measured(), small_simulation())).empty


def test_narrowing_keeps_what_is_simulated():
    ds = completed(measured(), small_simulation())
    assert set(study.rows(study.narrow(ds, ranks=[2]), "measured")["ranks"]) == {2}
    assert len(study.curves(study.narrow(ds, ranks=[2]))) == len(study.curves(ds))
    with pytest.raises(ValueError, match="no published run has ranks"):
        study.narrow(ds, ranks=[3])


def test_the_simulated_lead_is_ddps_efficiency_over_that_of_each_horovod():
    ds = completed(measured(), small_simulation())
    lead = study.simulated_leads(ds).set_index(["variant", "ranks"])["value"]
    ddp, other = (study.curve(ds, name).set_index("ranks")["efficiency"] for name in (study.DDP, study.UNCACHED))
    assert lead[study.UNCACHED, 1536] == pytest.approx(ddp[1536] / other[1536])


def test_errors_of_the_simulator_are_of_points_that_it_was_not_fitted_to():
    ds = completed(measured(), small_simulation())
    off = np.where(ds["library"] == "ddp", 1.1, 1.0)
    judged = ds.assign(judged_images_per_second=("run", ds["images_per_second"].to_numpy() * off))
    table = study.simulator_errors(judged, {}).set_index("simulated")
    assert table.loc["DDP over Horovod on one machine", "median error"] == "10%"
    assert study.simulator_errors(ds, {}).empty
