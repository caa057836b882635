"""What is made from data is in step with the data, and every claim stands there."""

import re

import numpy as np

from dolb import claims, results
from dolb.publishing import pages

NUMBER = re.compile(r"(?<![\w#-])\d[\d,]*\.?\d*")


def test_the_committed_pages_are_those_that_the_results_make(repo_root):
    for path, text in pages.made(repo_root).items():
        committed = path.read_text(encoding="utf-8")
        assert NUMBER.sub("#", committed) == NUMBER.sub("#", text), f"{path.name} is out of step: run `make pages`"
        ours, theirs = ([float(n.replace(",", "")) for n in NUMBER.findall(page)] for page in (text, committed))
        # Machines differ in the last bit of a float, and by that in the last digit that is written.
        np.testing.assert_allclose(ours, theirs, rtol=0.01, atol=0.0101, err_msg=path.name)


def test_every_claim_has_a_row_a_square_and_a_choice(repo_root):
    every_claim = claims.load(repo_root / "book" / "claims.yml")
    judged = claims.judge(every_claim, {})
    names = pages.cited((repo_root / "book" / "references.bib").read_text(encoding="utf-8"))
    for page, row in [
        (pages.verdicts(judged, names, {}), '<tr id="{}" '),
        (pages.scoreboard(judged, names), 'href="verdicts.html#{}"'),
        (pages.choices(judged, names), "<strong>{}</strong>"),
    ]:
        assert all(page.count(row.format(name)) == 1 for name in every_claim)


def test_documents_are_named_as_readers_name_them():
    entry = "@misc{{{key},\n  author = {{{authors}}},\n  year = {{2020}}\n}}\n"
    authors = {"a": "Li, Hao", "b": "Li, Hao and Xu, Zheng", "c": "Li, Hao and Xu, Zheng and Taylor, Gavin"}
    text = "".join(entry.format(key=key, authors=names) for key, names in authors.items())
    assert pages.cited(text) == {"a": "Li 2020", "b": "Li and Xu 2020", "c": "Li et al. 2020"}


def test_the_schema_page_names_every_name():
    page = pages.schema()
    assert all(f"| `{name}` |" in page for name in results.SCHEMA)
