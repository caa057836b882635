"""Training over links of several rates: cells and gaps by rate, intervals by how fast links are, and the words."""

import numpy as np
import pandas as pd
import pytest
from made_scaling import completed, made_linked, made_measurements, small_simulation

from dolb.findings import links


@pytest.fixture(scope="module")
def simulation():
    return small_simulation()


def over_links(library, hosts, rate, repeat):
    """Slow links halve the throughput of DDP and take three quarters of Horovod's; repetitions differ a little."""
    kept = 1.0 if np.isinf(rate) else {"ddp": 0.5, "horovod": 0.25}[library]
    return 100 * hosts * kept * (1 + 0.01 * repeat)


def test_steps_over_links_are_told_by_hosts_and_rate_with_intervals(simulation):
    ds = completed(made_linked(over_links, hosts=(2, 4)), simulation)
    table = links.cells(ds).set_index(["hosts", "variant", "limit"])
    cell = table.loc[(4, "Horovod", "100 Mbit/s")]
    logs = np.log([over_links("horovod", 4, 100.0, repeat) for repeat in range(2)])
    assert cell["step_seconds"] == pytest.approx(cell["batch_size"] / np.exp(logs.mean()))
    assert cell["step_low"] < cell["step_seconds"] < cell["step_high"]
    assert cell["efficiency"] == pytest.approx(0.25)  # what slows a whole repetition is not in it
    assert cell["achieved_mbit"] == pytest.approx(90)
    assert table.loc[(2, "DDP", "no limit"), "efficiency"] == pytest.approx(1)


def test_the_gap_over_links_is_by_rate(simulation):
    gaps = links.gaps(completed(made_linked(over_links), simulation)).set_index("link_mbit")
    assert gaps["ratio"].tolist() == pytest.approx([2, 1])


def test_results_without_links_have_no_such_table(simulation):
    ds = completed(made_measurements(lambda library, ranks, repeat: 100.0 * ranks), simulation)
    for one in (ds, ds.drop_vars(["hosts", "link_mbit"])):
        assert links.cells(one).empty
        assert links.gaps(one).empty


def test_the_error_of_the_simulator_is_told_of_points_that_it_was_not_fitted_to(simulation):
    cells = links.cells(completed(made_linked(over_links), simulation))
    points = pd.DataFrame(
        {
            "used": ["fit", "judge", "judge", "judge"],
            "error": [0.5, -0.3, 0.1, 0.05],
            "link_mbit": [np.inf, 10_000.0, 100.0, 1000.0],
            "compute": [1.5, 1.5, 1.5, 2.0],
        }
    )
    said = links.in_words(cells, points)
    assert "smallnet-8 on 2 hosts, with links of 100 Mbit/s, no limit" in said
    assert "off by 30% at most, 10% in the median" in said
    assert "Up to 1 Gbit/s it is too fast at 2 of 2 points, with errors from +5% to +10% and a mean of +8%" in said
    assert "beyond it is too fast at 0 of 1 points" in said
    assert "fitted on computing is 1.50 to 2.00" in said
    assert "does not judge" in links.in_words(cells, points[:1])


def test_networks_that_were_measured_over_unlike_links_are_told_apart(simulation):
    cells = links.cells(completed(made_linked(over_links), simulation))
    fast = cells[cells["link_mbit"] == np.inf].assign(arch="vgg11")
    points = pd.DataFrame({"used": ["fit"], "error": [0.1], "link_mbit": [np.inf], "compute": [1.0]})
    said = links.in_words(pd.concat([cells, fast], ignore_index=True), points)
    assert "on 2 hosts, smallnet-8 with links of 100 Mbit/s, no limit; vgg11 with links of no limit." in said


@pytest.mark.parametrize(("mbit", "said"), [(20, "20 Mbit/s"), (2500, "2.5 Gbit/s"), (np.inf, "no limit")])
def test_a_rate_is_said_as_people_say_it(mbit, said):
    assert links.rate_in_words(mbit) == said


def test_steady_slow_links_are_not_widened_by_fast_ones_that_are_not(simulation):
    """Repetitions differ by 1% up to 1 Gbit/s and by half beyond; DDP's and Horovod's the opposite way."""

    def speed(library, hosts, rate, repeat):
        apart = 0.01 if rate <= links.SLOW else 0.5
        return 100.0 * hosts * (1 + apart * (repeat if library == "ddp" else 1 - repeat))

    ds = completed(made_linked(speed, rates=(100.0, 1000.0, 10_000.0, np.inf)), simulation)
    wide = links.gaps(ds).set_index("link_mbit").eval("high / low")
    assert wide[100.0] == pytest.approx(wide[1000.0])
    assert wide[10_000.0] > 2 * wide[1000.0]
    cells = links.cells(ds).set_index(["variant", "link_mbit"]).eval("step_high / step_low")
    assert cells["DDP", 10_000.0] > 2 * cells["DDP", 100.0]
    assert "standard deviation of 0.7% (4 degrees of freedom) up to 1 Gbit/s" in links.spread_in_words(ds)


def test_where_fast_links_alone_were_repeated_slow_ones_have_their_spread(simulation):
    rows = made_linked(over_links, rates=(10_000.0,)) + made_linked(over_links, rates=(100.0,), repeats=1)
    gaps = links.gaps(completed([row for row in rows if row["ranks"].item() > 1], simulation)).set_index("link_mbit")
    assert np.isfinite(gaps.loc[100.0, "low"])
