"""What notebooks put on a page: charts that read in both themes, tables, verdicts, and what was run."""

import base64
import html
import json
import re

import altair as alt
import numpy as np
import pandas as pd
import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from made_runs import made_run

from dolb import claims, results
from dolb.publishing import panels, parameters


def spec_of(markup: str) -> dict:
    return json.loads(re.search(r"\}\)\((\{.*\}), (\{.*\})\);", markup)[1])


@pytest.fixture
def chart():
    data = pd.DataFrame({"x": [1], "name": ["</script><b>"], "ground": ["black"]})
    return alt.Chart(data).mark_text(fontSize=7, color="black").encode(x="x", color="name", text="name")


def test_a_chart_carries_its_alternative_text_its_caption_and_its_own_id(chart):
    first, second = (panels.show(chart, 'Rises "fast" & <falls>.', "It rises & falls.").data for _ in range(2))
    assert 'role="img" aria-label="Rises &quot;fast&quot; &amp; &lt;falls&gt;."' in first
    assert "<figcaption>It rises &amp; falls.</figcaption>" in first
    assert first.count("</script>") == 1
    ids = [re.search(r'<div id="([^"]+)"', markup)[1] for markup in (first, second)]
    assert ids[0] != ids[1]


def test_a_chart_has_the_colours_of_its_page_but_for_scales_and_data_and_no_small_letters(chart):
    shade = alt.Color("x:Q").scale(range=["black", "white"])
    spec = spec_of(panels.show(chart.encode(color=shade).configure_axis(labelFontSize=8), "Alternative text.").data)
    assert spec["background"] is None
    assert spec["mark"]["fontSize"] == spec["config"]["axis"]["labelFontSize"] == panels.LEAST_FONT_SIZE
    assert spec["mark"]["color"] == spec["config"]["axis"]["labelColor"] == "currentColor"
    assert spec["encoding"]["color"]["scale"]["range"] == ["black", "white"]
    assert next(iter(spec["datasets"].values()))[0]["ground"] == "black"


def test_a_chart_of_many_points_is_drawn_on_a_canvas_which_knows_no_theme():
    data = pd.DataFrame({"x": np.arange(panels.CANVAS_ROWS + 1)})
    markup = panels.show(alt.Chart(data).mark_point().encode(x="x"), "Alternative text.").data
    assert '"renderer": "canvas"' in markup
    assert "currentColor" not in markup


def test_in_an_open_notebook_a_chart_is_one_that_jupyterlab_draws_and_its_caption_follows(chart, monkeypatch):
    InteractiveShell.instance()
    monkeypatch.setenv("JPY_SESSION_NAME", "notebooks/01-batch-size.ipynb")  # as for a notebook that somebody has open
    try:
        with capture_output() as shown:
            below = panels.show(chart.properties(width="container"), "Rises.", "It rises & falls.")
    finally:
        InteractiveShell.clear_instance()
    (output,) = shown.outputs
    ((kind, spec),) = ((kind, spec) for kind, spec in output.data.items() if kind != "text/plain")
    assert spec["width"] > 300
    assert kind == "application/vnd.vegalite.v5+json"  # the newest that JupyterLab 4 knows
    assert spec["description"] == output.data["text/plain"] == "Rises."
    assert output.metadata[kind]["embed_options"]["renderer"] == "svg"
    assert "It rises &amp; falls." in below.data
    assert "<script" not in below.data


def test_a_table_has_its_long_cells_whole_and_its_caption():
    said = "a text of more characters than pandas shows by default, which are fifty and no more"
    shown = panels.table(pd.DataFrame({"ours": [said]}, index=["a part"]), "What & why")
    assert said in shown.data
    assert "<caption>What &amp; why</caption>" in shown.data


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.234, "points", "+1.23"),
        (-1.234, "points", "−1.23"),
        (-0.001, "points", "0.00"),
        (1.2, "ratio", "1.20×"),
        (-0.25, "share", "−25%"),
        (float("inf"), "ratio", "∞"),
    ],
)
def test_an_effect_is_written_in_its_unit(value, unit, text):
    assert panels.written(value, unit) == text


def test_a_chip_leads_to_the_claims_row():
    shown = panels.chips(claims.judge({"G11": claims.load()["G11"]}, {}))
    assert 'href="../book/verdicts.html#G11"' in shown.data
    assert "not yet measured" in shown.data


def test_the_panel_says_what_was_run_and_gives_the_commands_and_the_data():
    made = [made_run((0.5,) * 5, seed=seed, data="cifar10") for seed in range(3)]
    commits = ["a" * 40, *["b" * 40 + "+changes"] * 2]
    runs = results.merge([ds.assign(commit=("run", [commit])) for ds, commit in zip(made, commits, strict=True)])
    frame = pd.DataFrame({"a": ["é"], "b": [1]})
    panel = panels.what_was_run(runs, "batch-size", "01-batch-size", "published", {"cells": frame}, "<16> cores").data
    commands = re.findall("<code>(.*?)</code>", panel)
    assert commands[0].startswith("dolb sweep batch-size --scale paper")
    assert commands[1] == "papermill notebooks/01-batch-size.ipynb out.ipynb -p scale published"
    assert "device minutes, &lt;16&gt; cores" in panel
    assert base64.b64decode(re.search(r"base64,([^\"]+)", panel)[1]).decode() == "a,b\né,1\n"
    assert f"<td>{'b' * 12}<details><summary>1 more</summary>{'a' * 12}<" in panel  # that of the most runs first
    assert "2 of the runs: their code had changes" in panel


def test_a_file_is_in_the_page_and_a_large_one_beside_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    large = "0" * (panels.MOST_CHARACTERS + 1)
    page = panels.downloads({"a.json": "{}", "b.json": large}, "Traces <here>:", "12-step-timeline").data
    assert base64.b64encode(b"{}").decode() in page
    assert 'download="b.json" href="12-step-timeline-files/b.json"' in page
    assert (tmp_path / "12-step-timeline-files" / "b.json").read_text() == large
    assert "&lt;here&gt;" in page


def test_a_page_of_runs_made_live_says_so_above_and_at_every_chart_and_table(monkeypatch):
    frame, verdicts = pd.DataFrame({"ours": ["1"]}), claims.judge({"G11": claims.load()["G11"]}, {})
    assert panels.banner() is None
    for scale, word in (("demo", "Demo. "), ("paper", "Run live. ")):
        monkeypatch.setattr(parameters, "live_scale", lambda scale=scale: scale)
        assert f"<caption>{word}Ours</caption>" in panels.table(frame, "Ours").data
        assert "<caption>Not of this run. Ours</caption>" in panels.table(frame, "Ours", published=True).data
        assert parameters.LIVE[scale] in panels.chips(verdicts).data
    assert "G11" in panels.chips(verdicts).data
    assert panels.claims_table(claims.table(verdicts)) is not None
    monkeypatch.setattr(parameters, "live_scale", lambda: "demo")
    assert "G11" not in panels.chips(verdicts).data  # a demo decides nothing
    assert panels.claims_table(claims.table(verdicts)) is None


def test_what_papermill_put_in_stands_in_the_command_that_makes_it_again(monkeypatch):
    monkeypatch.setattr(parameters, "live_scale", lambda: "demo")
    monkeypatch.setattr(parameters, "injected", lambda: {"scale": "demo", "batch_sizes": [16, 64], "store": "a b"})
    shown = html.unescape(panels.what_was_run(made_run((0.5,)), "batch-size", "01-batch-size", "demo", {}).data)
    assert "out.ipynb -p scale demo -y '{batch_sizes: [16, 64], store: a b}'" in shown
    assert "dolb sweep" not in shown  # which has other runs


def test_a_page_of_a_part_of_the_published_runs_says_so_and_how_to_run_that_part(monkeypatch):
    verdicts = claims.judge({"G11": claims.load()["G11"]}, {})
    monkeypatch.setattr(parameters, "injected", lambda: {"scale": "published", "seeds": [0, 1], "data_dir": "a"})
    assert parameters.NARROWED in panels.chips(verdicts).data
    shown = html.unescape(panels.what_was_run(made_run((0.5,)), "batch-size", "01-batch-size", "published", {}).data)
    assert "dolb sweep batch-size --scale paper --seeds 0,1<" in shown
    own = panels.what_was_run(
        made_run((0.5,)), "batch-size", "01-batch-size", "published", {}, again="dolb sweep a; b"
    ).data
    assert "dolb sweep" not in own  # a chain of commands is of the whole grid
    monkeypatch.setattr(parameters, "injected", lambda: {"scale": "published", "data_dir": "a"})
    assert parameters.NARROWED not in panels.chips(verdicts).data
