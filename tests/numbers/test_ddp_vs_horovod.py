"""The numbers of page 11 are those that were published before: cells, leads, settings, links, the simulator's error."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from agreement import agrees

from dolb import results
from dolb.findings import ddp_vs_horovod as study

NUMBERS = Path(__file__).parent


@pytest.fixture(scope="module")
def ds():
    return results.published("ddp-vs-horovod")


def test_measured_cells(ds):
    agrees(study.cells(ds), "ddp-vs-horovod-cells", ["arch", "scaling", "library", "ranks"])


def test_leads_by_network_and_over_all(ds):
    found = study.leads(ds).replace({"arch": {study.EVERY: "geometric mean"}})
    agrees(found, "ddp-vs-horovod-leads", ["arch", "ranks"], ratio="value")


def test_settings(ds):
    by = ["source", "library", *study.SETTINGS]
    agrees(study.tuned(ds), "ddp-vs-horovod-tuned", by, ratio="value", repeats="n")


def test_links(ds):
    agrees(study.linked_cells(ds), "ddp-vs-horovod-links", ["arch", "hosts", "library", "link_mbit"])


def test_simulated_leads(ds):
    agrees(study.simulated_leads(ds), "ddp-vs-horovod-simulated-leads", ["variant", "ranks"], ratio="value")


def test_the_simulators_error_in_the_ratio_of_the_libraries(ds):
    known = pd.read_csv(NUMBERS / "ddp-vs-horovod-model-error.csv").iloc[0]
    off = study.judged(ds)
    both = (off["ddp"] - off["horovod"]).dropna()
    assert len(both) == known["pairs"]
    assert np.sqrt((both**2).mean()) == pytest.approx(known["root_mean_square_log"], rel=1e-5)
