"""The picture of the pipeline says what the code does: its stages exist, fit together, and are drawn in their order."""

import itertools
import xml.etree.ElementTree as ET

import nbformat
import pytest

from dolb.filtering import pipeline

NAMES = [stage.name for stage in pipeline.stages()]


@pytest.mark.parametrize("stage", pipeline.stages(), ids=NAMES)
def test_a_stage_is_a_function_that_exists_and_says_what_it_does(stage):
    assert callable(stage.resolve())
    assert stage.resolve().__name__ == stage.function.rpartition(".")[2]
    assert stage.says[0].isupper()
    assert stage.says.endswith(".")


@pytest.mark.parametrize("stage", pipeline.stages(), ids=NAMES)
def test_a_stage_is_one_that_the_pipeline_calls(stage, repo_root):
    code = "".join((repo_root / "dolb" / name).read_text(encoding="utf-8") for name in ("stages.py", "pipeline.py"))
    assert f"{stage.function.rpartition('.')[2]}(" in code


def test_each_stage_takes_what_the_one_before_gives():
    chain = pipeline.stages()
    for before, after in itertools.pairwise(chain):
        assert before.gives in after.takes


def test_the_picture_shows_every_stage_in_order_with_its_function_and_its_own_words():
    picture = ET.fromstring(pipeline.pipeline_svg())
    written = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    headings = [text for text in written if text[0].isdigit()]
    assert headings == [f"{k + 1}. {name}" for k, name in enumerate(NAMES)]
    for stage in pipeline.stages():
        assert stage.function.removeprefix("dolb.") in written
        assert stage.says in " ".join(written)


def test_the_picture_has_a_text_alternative_and_no_colour_of_its_own():
    text = pipeline.pipeline_svg()
    picture = ET.fromstring(text)
    assert picture.get("role") == "img"
    assert all(name in picture.find("{http://www.w3.org/2000/svg}title").text for name in NAMES)
    assert "#" not in text
    assert text in pipeline.show_pipeline().data


def test_the_page_on_features_shows_the_picture(repo_root):
    cells = nbformat.read(repo_root / "notebooks" / "02-features.ipynb", 4).cells
    assert [cell for cell in cells if cell.cell_type == "code" and cell.source == "show_pipeline()"]
