"""Judges of one step, by traced steps whose answer is known."""

import numpy as np
import pytest
from made_scaling import made_measurement

from dolb import claims, results
from dolb.profiling.simulator import curves


def steps(library, repeats=3, **values):
    """Make rows of traced steps without their events; every further run has 2% more of what is given."""
    numbers = {"step_seconds": 0.1, "communication_seconds": 0.02, "overlap": 0.5, "negotiation_between_seconds": 0.0}
    rows = []
    for repeat in range(repeats):
        same = {"experiment": "step-timeline", "ranks": 2, "trace_steps": 3, "library": library, "repeat": repeat}
        found = numbers | {name: value * (1 + 0.02 * repeat) for name, value in values.items()}
        row = curves.named(made_measurement(**same))
        rows.append(row.assign({name: ("run", np.array([value])) for name, value in found.items()}))
    return results.merge(rows)


def outcome(name, ds):
    return claims.published_verdicts([name], step_timeline=ds)[name].outcome


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0.04, "replicated"), (0.005, "smaller than claimed"), (0.0, "not replicated")]
)
def test_negotiation_is_long_if_it_takes_half_as_long_as_the_all_reduces(seconds, expected):
    assert outcome("G19", steps("horovod", negotiation_between_seconds=seconds)) == expected


@pytest.mark.parametrize(("share", "expected"), [(0.8, "replicated"), (0.1, "smaller than claimed")])
def test_overlap_is_the_share_of_communication_behind_computing(share, expected):
    assert outcome("G20", steps("ddp", overlap=share)) == expected


def test_a_library_that_was_not_traced_or_only_once_is_not_judged():
    assert outcome("G19", steps("ddp")) == "not yet measured"
    assert outcome("G20", steps("ddp", repeats=1)) == "not yet measured"
