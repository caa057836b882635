"""Judges of scaling, by throughputs whose answer is known."""

import pytest
from made_scaling import completed, made_measurement, made_measurements, small_simulation

from dolb import claims

NOISE = (0.99, 1.0, 1.01)


def verdict(name, measured, simulation=None):
    ds = completed(measured, simulation or small_simulation())
    return claims.published_verdicts([name], ddp_vs_horovod=ds)[name]


def of_both(lead, efficiency=1.0, **changes):
    return made_measurements(
        lambda library, ranks, repeat: (
            100.0
            * (ranks if ranks == 1 else ranks * efficiency)
            * (lead * NOISE[repeat] if library == "ddp" and ranks > 1 else 1.0)
        ),
        **changes,
    )


@pytest.mark.parametrize(
    ("lead", "outcome"), [(1.2, "replicated"), (1.03, "smaller than claimed"), (0.8, "not replicated")]
)
def test_ddps_lead_is_measured_on_the_most_ranks_and_the_claim_stays_beyond_us(lead, outcome):
    found = verdict("G18", of_both(lead, 0.5))
    assert (found.outcome, found.outcomes) == ("not testable here", (outcome,))
    assert found.estimates[0].value == pytest.approx(lead, rel=0.01)
    assert found.estimates[0].n == 3


def test_without_horovod_no_lead_is_measured():
    assert verdict("G18", of_both(1.0, libraries=("ddp",))).estimates == (None,)


@pytest.mark.parametrize(("gain", "outcome"), [(1.0, "replicated"), (1.5, "not replicated")])
def test_tuning_helps_marginally_if_the_best_setting_is_within_a_twentieth_of_the_defaults(gain, outcome):
    tuned = [
        made_measurement(200.0 * gain * NOISE[repeat], library="horovod", ranks=4, cycle_time_ms=25.0, repeat=repeat)
        for repeat in range(3)
    ]
    assert verdict("G21", [*of_both(1.0, 0.5), *tuned]).outcome == outcome


def test_settings_that_nobody_measured_are_not_judged():
    assert verdict("G21", of_both(1.0)).outcome == "not yet measured"


def test_a_ring_takes_twice_the_ranks_less_one_steps():
    simulation = small_simulation()
    assert verdict("M8", of_both(1.0), simulation).outcome == "replicated"
    simulation["message_steps"] = simulation["message_steps"] + 1
    assert verdict("M8", of_both(1.0), simulation).outcome == "not replicated"


@pytest.mark.parametrize(("efficiency", "outcome"), [(0.9, "replicated"), (1.5, "not replicated")])
def test_k_times_one_worker_is_an_ideal_if_nothing_lies_above_it(efficiency, outcome):
    assert verdict("J1", of_both(1.0, efficiency)).outcome == outcome
