"""Pages made from data are in step with the data, and say what the data says."""

from made_runs import made_curve

from dolb import claims, results
from dolb.publishing import pages


def test_the_committed_pages_are_those_that_the_results_make(repo_root):
    for path, text in pages.made(repo_root).items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name} is out of step: run `make pages`"


def test_every_claim_stands_on_the_page_of_verdicts(repo_root):
    sources, every_claim = claims.load(repo_root / "book" / "claims.yml")
    page = pages.verdicts(sources, claims.judge(every_claim, {}), {})
    for name, claim in every_claim.items():
        assert f"| {name}, " in page
        assert claim.statement[1:] in page


def test_the_schema_page_names_every_name(repo_root):
    page = pages.schema()
    assert all(f"| `{name}` |" in page for name in results.SCHEMA)


def test_a_claim_that_waits_for_runs_says_for_which(repo_root):
    sources, every_claim = claims.load(repo_root / "book" / "claims.yml")
    judged = claims.judge(every_claim, {"batch-size": results.merge(made_curve({64: 0.5}))})
    assert "G2 waits: Two networks at two rates, with batch sizes in common, are the least." in pages.verdicts(
        sources, judged, {}
    )
