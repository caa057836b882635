"""Notebooks narrowed by parameters, at published scale: they draw what was asked for, and say what they cannot."""

import pytest
from executed import outputs_of

from dolb import publishing, results

pytestmark = pytest.mark.slow


@pytest.fixture
def narrowed(tmp_path, repo_root, monkeypatch):
    """Run a notebook on the published results with some parameters, and return what its cells put out, as one text."""
    monkeypatch.setenv("DOLB_RESULTS", str(repo_root / "results"))

    def run(name, **parameters):
        source = repo_root / "notebooks" / f"{name}.ipynb"
        return outputs_of(
            publishing.run_notebook(source, tmp_path / "out.ipynb", parameters, cwd=tmp_path, progress=False)
        )

    return run


def test_the_page_on_one_step_says_which_ranks_are_published_if_asked_for_others(narrowed):
    published = results.published("step-timeline")
    measured = published.isel(run=published.source.to_numpy() == "measured").ranks
    listed = ", ".join(str(ranks) for ranks in sorted({int(ranks) for ranks in measured}))
    with pytest.raises(publishing.GateError, match=rf"no published run has ranks \[3\]; published: ranks {listed}$"):
        narrowed("12-step-timeline", ranks=[3])


def test_the_page_on_large_batches_compares_two_sets_without_full_data(narrowed):
    said = narrowed("05-filtered-large-batch", sets=["network", "random"], batch_sizes=[6272, 8192])
    assert '"set": "random"' in said
    assert '"set": "full"' not in said


def test_the_page_on_remedies_draws_two_batch_sizes_of_what_is_published(narrowed):
    sizes = sorted({int(size) for size in results.published("large-batch-remedies").batch_size})
    said = narrowed("09-large-batch-remedies", batch_sizes=sizes[:2])
    assert f'"batch_size": {sizes[0]}' in said
    assert f'"batch_size": {sizes[-1]}' not in said


def test_the_page_on_strong_and_weak_scaling_draws_the_workers_that_were_asked_for(narrowed):
    said = narrowed("13-strong-weak", workers=[1, 8])
    assert '"workers": 8' in said
    assert '"workers": 32' not in said
