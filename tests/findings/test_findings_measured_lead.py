"""The main measured result: DDP over Horovod by network and ranks, their mean, and who is told to be ahead where."""

import numpy as np
import pytest
from made_scaling import completed, made_measurement, made_measurements, small_simulation

from dolb.findings import measured_lead, strong_scaling


@pytest.fixture(scope="module")
def simulation():
    return small_simulation()


def two_networks(lead, noise=0.01, lacking=()):
    """Runs of two networks, DDP ahead by a factor that depends on ranks; repetitions of it differ by ``noise``."""
    return [
        row
        for arch, more in (("resnet18", 1.0), ("vgg11", 1.1))
        for row in made_measurements(
            lambda library, ranks, repeat, more=more: (
                100.0 * ranks * (lead(ranks) * more * (1 + noise * (repeat - 1)) if library == "ddp" else 1)
            ),
            arch=arch,
        )
        if (arch, row["ranks"].item()) not in lacking
    ]


def test_the_table_has_a_row_per_network_and_their_mean_and_a_column_per_number_of_ranks(simulation):
    ds = completed(two_networks(lambda ranks: {1: 1.0, 2: 1.2, 4: 1.0}[ranks]), simulation)
    table = measured_lead.table(ds)
    assert table.index.tolist() == ["resnet18", "vgg11", "geometric mean"]
    assert table.columns.tolist() == ["2 ranks", "4 ranks"]
    assert table.loc["resnet18", "2 ranks"].startswith("1.20 (")
    assert table.loc["geometric mean", "2 ranks"].startswith(f"{1.2 * np.sqrt(1.1):.2f} (")


def test_a_mean_of_networks_that_share_their_launches_is_known_no_better_than_each(simulation):
    """What a repetition does to one network it does to the other: two networks of three launches are three draws."""
    found = measured_lead.leads(completed(two_networks(lambda _: 1.2), simulation)).query("ranks == 2")
    errors, freedom = found.set_index("arch")["log_error"], found.set_index("arch")["freedom"]
    assert errors["geometric mean"] == pytest.approx(errors["resnet18"])
    assert freedom["geometric mean"] == 2 * (3 - 1)  # two numbers of ranks, three repetitions


def test_a_mean_of_networks_whose_noise_cancels_within_a_launch_is_known_better(simulation):
    rows = []
    for arch, sign in (("resnet18", 1), ("vgg11", -1)):
        rows += made_measurements(
            lambda library, ranks, repeat, sign=sign: (
                100.0 * ranks * (1.2 * 1.1 ** (sign * (repeat - 1)) if library == "ddp" else 1)
            ),
            arch=arch,
        )
    errors = measured_lead.leads(completed(rows, simulation)).query("ranks == 2").set_index("arch")["log_error"]
    assert errors["geometric mean"] == pytest.approx(0, abs=1e-9)
    assert errors["resnet18"] > 0.01


def test_there_is_a_mean_only_where_every_network_was_measured(simulation):
    ds = completed(two_networks(lambda _: 1.2, lacking=[("vgg11", 4)]), simulation)
    table = measured_lead.table(ds)
    assert table.loc["geometric mean", "2 ranks"]
    assert table.loc["geometric mean", "4 ranks"] == ""


@pytest.mark.parametrize(
    ("lead", "noise", "said"),
    [
        (1.2, 0.01, "DDP is ahead on 2 and 4 ranks"),
        (0.7, 0.01, "Horovod is ahead on 2 and 4 ranks"),
        (1.0, 0.5, "On 2 and 4 neither is told to be ahead"),
    ],
)
def test_who_is_ahead_is_said_by_number_of_ranks(simulation, lead, noise, said):
    told = measured_lead.in_words(completed(two_networks(lambda _: lead, noise), simulation))
    assert said in told
    assert told.endswith("widened for 2 comparisons.")


def test_in_short_it_is_one_line(simulation):
    ds = completed(two_networks(lambda ranks: {1: 1.0, 2: 1.3, 4: 1 / 1.1**0.5}[ranks]), simulation)
    assert measured_lead.in_short(ds) == (
        f"DDP's throughput is that of Horovod times {1.3 * 1.1**0.5:.2f} on 2, 1.00 on 4 ranks, told apart from 1 on 2 "
        "alone (geometric mean over 2 networks, weak scaling)."
    )


def test_without_repetitions_no_lead_is_told(simulation):
    once = [row for row in two_networks(lambda _: 1.5) if row["repeat"].item() == 0]
    assert "no lead is told apart from none" in measured_lead.in_words(completed(once, simulation))


# Strong scaling


def strong(alone_small, alone_large):
    """Four ranks with 16 images each under weak scaling, and two with 32 under strong, beside one rank alone."""
    return [
        made_measurement(100.0, ranks=4, batch_size_per_rank=16, alone=(alone_small, alone_small)),
        made_measurement(150.0, ranks=2, batch_size_per_rank=32, scaling="strong", alone=(alone_large, alone_large)),
    ]


def test_a_small_share_is_told_by_how_fast_one_rank_alone_trains_it(simulation):
    said = strong_scaling.in_words(completed(strong(30.0, 60.0), simulation))
    assert "one rank trains batches of 16 images at 50% (smallnet-8)" in said
    assert "of its speed with 64" in said
    # On the 4 ranks efficiency is 100 / (4 x 60), of which a half is the share.
    assert "share each, 42% to 42%, that is a factor of 0.50 to 0.50, and all else" in said
    assert "another of 0.83 to 0.83; with 1 of 1 networks the share costs more" in said
    assert "Of 1 pairs of network and library 1 are fastest on fewer ranks than the most, 4, on which 0 of 1" in said


def test_what_ranks_gain_on_a_fixed_batch_is_told_by_number_of_ranks(simulation):
    table = strong_scaling.gains(completed(strong(30.0, 60.0), simulation))
    assert table.index.tolist() == ["smallnet-8, DDP"]
    # 150 images a second on 2 ranks and 100 on 4, over 60 of one alone; of one run each, with no interval
    assert table.to_dict("records") == [{"2 ranks": "2.50", "4 ranks": "1.67"}]


def test_without_two_sizes_of_a_batch_no_share_is_told(simulation):
    ds = completed(made_measurements(lambda _, ranks, __: 100.0 * ranks, repeats=1), simulation)
    assert "was not measured with two sizes" in strong_scaling.in_words(ds)
