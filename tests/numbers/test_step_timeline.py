"""The numbers of page 12 are those that were published before: the shares of a step, and the events that are drawn."""

from pathlib import Path

import pandas as pd
import pytest

from dolb import results
from dolb.findings import step_timeline as study

NUMBERS = Path(__file__).parent
PARTS = {
    "negotiation": "negotiation", "communication": "all-reduces", "exposed": "of that, not hidden",
    "idle": "neither computes nor reduces", "late": "last rank behind the first", "overlap": study.HIDDEN,
}  # fmt: skip


@pytest.fixture(scope="module")
def ds():
    return results.published("step-timeline")


def test_shares_of_a_step(ds):
    found = study.shares(ds).set_index(["variant", "source", "part"])
    for row in pd.read_csv(NUMBERS / "step-timeline-shares.csv").to_dict("records"):
        for old, part in PARTS.items():
            known = [row[old], row[f"{old}_low"], row[f"{old}_high"]]
            ours = found.loc[(row["variant"], row["source"], part)][["value", "low", "high"]].tolist()
            assert ours == pytest.approx(known, rel=1e-5, nan_ok=True)


def test_events_by_lane(ds):
    lanes = study.events(ds).groupby(["variant", "source", "rank", "lane"])
    found = lanes.agg(
        events=("name", "size"), start_ms=("start_ms", "min"), end_ms=("end_ms", "max"),
        duration_ms=("duration_ms", "sum"), bytes=("bytes", "sum"),
    ).reset_index()  # fmt: skip
    known = pd.read_csv(NUMBERS / "step-timeline-lanes.csv")
    pd.testing.assert_frame_equal(found, known, check_dtype=False, rtol=1e-5)
