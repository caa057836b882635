"""The numbers of page 15 are those that were published before: images per second, and their ratios."""

import pytest
from agreement import agrees

from dolb import results
from dolb.findings import data_pipeline as study


@pytest.fixture(scope="module")
def ds():
    return results.published("data-pipeline")


def test_images_per_second_by_form(ds):
    agrees(study.cells(ds), "data-pipeline-cells", ["storage", "access", "cache", "loader_workers"])


def test_the_flat_file_over_others(ds):
    agrees(study.ratios(ds), "data-pipeline-ratios", ["images", "access", "cache", "over"])


def test_the_flat_file_is_at_least_as_fast_as_the_best_other_at_random(ds):
    best = study.ratios(ds).query("access == 'random' and over == 'best other' and images == 'ImageNet-sized'")
    assert (best["high"] >= 1).all()
