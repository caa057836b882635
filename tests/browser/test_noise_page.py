"""The page on noise in the built book: the viewer with its images, of published results as large as the study's."""

import re
import shutil

import numpy as np
import pytest
from selenium.webdriver.common.by import By
from sklearn.datasets import load_sample_images
from viewing import EPS, LOCAL, POINTS, Figure, tiles

from dolb import data, images, recipes, results, viewer
from dolb import publishing as publish
from dolb.filtering import masks

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]

CONTENTS = "format: jb-book\nroot: book/intro\nchapters:\n  - file: notebooks/published\n  - file: notebooks/demo\n"
KNOWN = {"device": "none", "feature_width": 2048, "network_accuracy": 0.8, "seconds": 1.0, "peak_memory_bytes": 1}


@pytest.fixture(scope="module")
def pages(made, demo, repo_root, vega, tmp_path_factory):
    """A book of that one notebook, run twice: on published results of 50,000 made-up points, and live on digits."""
    root, staging = (tmp_path_factory.mktemp(name) for name in ("book", "staging"))
    shutil.copytree(repo_root / "book", root / "book", ignore=shutil.ignore_patterns("*.md", "__pycache__"))
    shutil.copy(repo_root / "_config.yml", root)
    (root / "book" / "intro.md").write_text("# Noise\n\n```{bibliography}\n```\n")
    (root / "_toc.yml").write_text(CONTENTS)
    (root / "notebooks").mkdir()
    write_results(made, root / "results")
    shutil.copytree(vega, staging / "_build" / "vega")
    publish.stage(root, staging, only=[])
    source, target = repo_root / "notebooks" / "03-noise.ipynb", staging / "notebooks" / "published.ipynb"
    publish.run_notebook(source, target, {}, cwd=staging, progress=False)
    shutil.copy(demo("03-noise"), staging / "notebooks" / "demo.ipynb")
    return publish.build_pages(staging, root / "html").parent / "notebooks"


def write_results(made, folder):
    """Write masks by the names and keys of the study's own, on the made-up map, and photographs for its images."""
    rng = np.random.default_rng(2)
    keep, pixel = made["keep"].values, np.zeros((POINTS, 1, 1, 3), dtype=np.uint8)
    splits = images.Splits(pixel, made["label"].values, pixel[:10], np.arange(10))
    cifar10 = images.assemble("cifar10", splits, data.class_names("cifar10"), images.digests_of(splits))
    chosen = {
        "default": keep & (rng.random(POINTS) < 0.5),
        "network": keep,
        "recursive": keep & (rng.random(POINTS) < 0.95),
        "random": rng.permutation(keep),
    }
    placed = {"coordinates": np.stack([made["x"], made["y"]], axis=1), "noise_until": made["noise_until"].values}
    parts = []
    for name, mask in chosen.items():
        config = recipes.default_masks("paper")["network"] if name == "default" else recipes.masks("paper")[name]
        about = {**config.as_dict(), **KNOWN, "key": config.key}
        more = placed if name == "network" else {}
        parts.append(masks.keep_dataset(mask, cifar10, config.subset, about=about, **more))
    results.save(results.merge(parts), folder / "noise.nc")
    shown = viewer.examples_to_show(made)
    photos = np.concatenate([photo[:416, :640] for photo in load_sample_images().images])
    rows, columns = rng.integers(0, 800, len(shown)), rng.integers(0, 608, len(shown))
    crops = np.stack([photos[y : y + 32, x : x + 32] for y, x in zip(rows, columns, strict=True)])
    viewer.thumbnails(crops, shown, cifar10.fingerprint).save(folder / "noise-images.npz")


@pytest.fixture(params=["published", "demo"])
def shown(request, browser, pages):
    browser.open(pages / f"{request.param}.html")
    return Figure(browser), pages / f"{request.param}.html"


def test_the_page_is_small_quiet_and_asks_nothing_of_the_network(shown):
    figure, path = shown
    assert path.stat().st_size < viewer.MOST_BYTES
    asked = figure.browser.requests()
    assert asked
    assert [url for url in asked if not url.startswith(LOCAL)] == []
    assert figure.browser.errors() == []


def test_the_slider_answers_and_the_gallery_follows(shown):
    figure, _ = shown
    figure.slide_to(5)
    (many, of), *_ = figure.shares()
    figure.slide_to(120)
    (few, _), *_ = figure.shares()
    assert 0 < few < many < of
    assert f"of {few:,}" in figure.find(".dv-shown")[0].text
    assert len(tiles(figure)) == min(48, few)


def test_pointing_at_a_removed_point_shows_its_image(shown):
    figure, _ = shown
    example = tiles(figure)[0]
    figure.wait(lambda: figure.point_at(example) or figure.find(".dv-card:not([hidden]) canvas"))
    assert re.search(r"example \d+", figure.find(".dv-card")[0].text)


def test_under_the_figure_stands_what_was_run_and_its_data(shown):
    figure, _ = shown
    panel = figure.script(
        "return [...document.querySelectorAll('.dolb-provenance')].find(panel =>"
        " figure.compareDocumentPosition(panel) & Node.DOCUMENT_POSITION_FOLLOWING)"
    )
    assert "papermill notebooks/03-noise.ipynb" in panel.get_attribute("textContent")
    link = panel.find_element(By.CSS_SELECTOR, "a[download^=noise-map]")
    text = figure.driver.execute_script("return fetch(arguments[0].href).then(answer => answer.text())", link)
    header, *rows = text.splitlines()
    assert header == "example,class,x,y,keep,noise_until"
    assert len(rows) == figure.shares()[0][1]


def test_the_published_page_shows_every_point_and_starts_at_the_mask_of_the_study(browser, pages, made):
    browser.open(pages / "published.html")
    figure = Figure(browser)
    assert figure.shares() == [(int((~made["keep"]).sum()), POINTS)]
    assert figure.eps() == EPS
    assert "without an image" not in figure.find(".dv-shown")[0].text
