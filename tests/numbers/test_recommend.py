"""The prices of page 17 are those that were published before."""

from pathlib import Path

import numpy as np
import pandas as pd

from dolb import results
from dolb.findings import batch_size as study
from dolb.findings import recommend
from dolb.findings.runs import final_accuracy
from dolb.profiling import steps
from dolb.training.config import EVAL_BATCH


def test_accuracies_and_seconds_of_a_run_alone():
    known = pd.read_csv(Path(__file__).parent / "recommend.csv")
    ds = results.published("batch-size")
    speeds = recommend.speeds(results.published("benchmarks"), str(ds["device"].to_numpy()[0]), steps.ENGINE)
    found = recommend.priced(study.curve_cells(ds), final_accuracy(ds), speeds, EVAL_BATCH)
    both = found.merge(known, on=list(study.CELL), suffixes=("", "_known"))
    assert len(both) == len(known) == len(found)
    np.testing.assert_allclose(both["seconds"], both["alone_seconds"], rtol=1e-5)
    np.testing.assert_allclose(both["accuracy"], both["accuracy_known"], rtol=1e-5)
