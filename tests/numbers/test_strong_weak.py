"""The numbers of the page on strong and weak scaling are those that were published before."""

from agreement import agrees

from dolb import results
from dolb.findings import strong_weak as study


def test_time_to_the_target_by_rule_and_workers():
    timed = study.times(
        study.runs(results.published("strong-weak")), study.step_times(results.published("strong-weak-steps"))
    )
    agrees(study.cells(timed).drop(columns="source"), "strong-weak", study.CELL)
