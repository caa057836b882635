"""Judges of storage, by measurements whose answer is known."""

import pytest
from made_runs import joined
from made_storage import made_measurement, made_reading, made_training

from dolb import claims


def outcome(name, rows):
    return claims.published_verdicts([name], data_pipeline=joined(rows))[name].outcome


@pytest.mark.parametrize(
    ("ratio", "expected"), [(2.5, "replicated"), (1.5, "smaller than claimed"), (0.9, "not replicated")]
)
def test_one_flat_file_removes_the_bottleneck_if_twice_as_many_images_come_from_it(ratio, expected):
    def speed(form, access, cache, workers, seed):
        cold = (access, cache) == ("random", "cold")
        return 100 * (ratio if cold and form == "flat" else 1.0) * (1 + 0.01 * seed * (form == "flat"))

    assert outcome("K5", made_reading(speed)) == expected


@pytest.mark.parametrize(
    ("less", "expected"), [(0.3, "replicated"), (0.05, "smaller than claimed"), (-0.05, "not replicated")]
)
def test_containers_avoid_starving_if_the_trainer_waits_a_tenth_less(less, expected):
    def share(form, access, seed):
        return (0.5 if form == "files" else 0.5 - less) + 0.001 * seed * (form == "files")

    assert outcome("J2", made_training(share)) == expected


def test_one_seed_is_not_judged():
    assert outcome("K5", made_reading(lambda *_: 1.0, seeds=1)) == "not yet measured"
    assert outcome("J2", [made_measurement(1.0)]) == "not yet measured"
