"""The rate of every update: scaling with the batch, warmup, decay."""

import math

import numpy as np
import pytest

from dolb.training import schedule

PLAIN = {
    "lr": 0.1, "lr_scaling": "none", "batch_size": 1024, "base_batch_size": 256, "warmup_epochs": 0.0,
    "decay": "constant", "epochs": 4, "steps_per_epoch": 5,
}  # fmt: skip


def rates(**changes) -> np.ndarray:
    return schedule.learning_rates(**(PLAIN | changes))


@pytest.mark.parametrize(("scaling", "factor"), [("none", 1), ("linear", 4), ("sqrt", 2)])
def test_the_rate_grows_with_the_batch_as_asked(scaling, factor):
    np.testing.assert_allclose(rates(lr_scaling=scaling), 0.1 * factor, rtol=1e-15)


def test_warmup_rises_in_equal_steps_and_its_last_update_has_the_peak():
    steps = 2 * 5
    expected = [0.1 * (k + 1) / steps for k in range(steps)] + [0.1] * (20 - steps)
    np.testing.assert_allclose(rates(warmup_epochs=2.0), expected, rtol=1e-15)
    assert rates(warmup_epochs=2.0)[steps - 1] == 0.1


def test_steps_divide_the_rate_by_ten_from_the_first_update_of_an_epoch():
    expected = [0.1] * 5 + [0.01] * 10 + [0.001] * 5
    np.testing.assert_allclose(rates(decay="step:1,3"), expected, rtol=1e-12)


def test_cosine_starts_at_the_peak_and_ends_one_update_before_zero():
    expected = [0.05 * (1 + math.cos(math.pi * k / 20)) for k in range(20)]
    np.testing.assert_allclose(rates(decay="cosine"), expected, rtol=1e-12)


@pytest.mark.parametrize(("decay", "power"), [("polynomial", 1), ("polynomial:2", 2), ("polynomial:0.5", 0.5)])
def test_polynomial_falls_with_the_power_of_what_is_left(decay, power):
    np.testing.assert_allclose(rates(decay=decay), [0.1 * (1 - k / 20) ** power for k in range(20)], rtol=1e-12)


@pytest.mark.parametrize("decay", ["cosine", "polynomial:2"])
def test_a_smooth_decay_starts_where_warmup_ends(decay):
    with_warmup, alone = rates(decay=decay, warmup_epochs=1.0), rates(decay=decay, epochs=3)
    np.testing.assert_allclose(with_warmup[5:], alone, rtol=1e-12)
    assert with_warmup[4] == with_warmup[5] == 0.1


@pytest.mark.parametrize("decay", ["constant", "cosine", "polynomial:2", "step:0,2", "step:4"])
@pytest.mark.parametrize("steps", [1, 5])
def test_warmup_as_long_as_training_rises_to_the_peak_of_its_last_update(decay, steps):
    row = rates(decay=decay, warmup_epochs=4.0, steps_per_epoch=steps)
    rising = np.array([0.1 * (k + 1) / (4 * steps) for k in range(4 * steps)])
    milestones = [int(part) for part in decay.partition("step:")[2].split(",") if part]
    falling = np.array([0.1 ** sum(k >= at * steps for at in milestones) for k in range(4 * steps)])
    np.testing.assert_allclose(row, rising * falling, rtol=1e-15)  # a smooth decay would begin where training ends


def test_one_update_an_epoch_has_a_rate_for_each_epoch():
    assert rates(steps_per_epoch=1, decay="step:1,3").tolist() == pytest.approx([0.1, 0.01, 0.01, 0.001], rel=1e-15)
    assert rates(steps_per_epoch=1, warmup_epochs=1.0).tolist() == [0.1] * 4  # the only update of warmup is its last
    assert rates(steps_per_epoch=1, epochs=1, decay="polynomial").tolist() == [0.1]


@pytest.mark.parametrize(
    "text",
    [
        "exponential", "", "step", "step:a", "step:3,1", "step:-1", "cosine:2", "polynomial:0", "polynomial:x",
    ],
)  # fmt: skip
def test_a_decay_that_makes_no_sense_is_refused_with_the_accepted_forms(text):
    with pytest.raises(ValueError, match=r"accepted: constant, cosine, step:E1,E2.*polynomial") as error:
        schedule.parse_decay(text)
    assert repr(text) in str(error.value)
