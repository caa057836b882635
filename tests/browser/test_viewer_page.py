"""A reader opens the viewer from disk, without a network: the map draws, the slider answers, images show."""

import re

import numpy as np
import pytest
from viewing import LOCAL, POINTS, Figure, picture, tiles

from dolb import viewer
from dolb.filtering import noise

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]

DRAWN_BOTH_WAYS = pytest.mark.parametrize("opened", ["webgl", "canvas"], indirect=True)
CLASSES = [f"class {k}" for k in range(10)]


@pytest.fixture(scope="module")
def colour_of():
    """The colour of each example's image."""
    return np.random.default_rng(1).integers(0, 256, (POINTS, 3)).astype(np.uint8)


@pytest.fixture(scope="module")
def viewer_page(made, colour_of, tmp_path_factory):
    images = viewer.thumbnails(np.broadcast_to(colour_of[:, None, None], (POINTS, 8, 8, 3)))
    return viewer.write_page(tmp_path_factory.mktemp("viewer"), made, images, CLASSES, title="Map")


@pytest.fixture(params=["webgl"])
def opened(request, browser, viewer_page):
    browser.open(viewer_page, f"?renderer={request.param}")
    figure = Figure(browser)
    assert figure.script("return figure.viewer.map.kind") == request.param
    return figure


def test_the_page_is_small_quiet_and_asks_nothing_of_the_network(opened, viewer_page):
    assert viewer_page.stat().st_size < 2_000_000
    asked = opened.browser.requests()
    assert asked
    assert [url for url in asked if not url.startswith(LOCAL)] == []
    assert opened.browser.errors() == []


@DRAWN_BOTH_WAYS
def test_every_point_is_on_the_map(opened, made):
    opened.driver.execute_script("arguments[0].click()", opened.find("[name=colour][value=class]")[0])
    opened.wait(lambda: len(opened.find(".dv-legend li")) == len(CLASSES))
    # Every class's disc is drawn in the class's colour: look at the disc's middle.
    opened.wait(lambda: _colours_seen(opened, made) == len(CLASSES))


def _colours_seen(figure, made):
    drawn, seen = figure.pixels(), 0
    dots = figure.script(
        "return [...figure.querySelectorAll('.dv-legend span')].map(dot => getComputedStyle(dot).backgroundColor)"
    )
    for k, dot in enumerate(dots):
        colour = np.array([int(part) for part in re.findall(r"\d+", dot)])
        members = np.flatnonzero((made["label"].values == k) & made["keep"].values)[:40]
        at = "return arguments[0].map(i => figure.viewer.map.at(i))"
        places = np.rint(figure.script(at, members.tolist())).astype(int)
        near = np.array([np.abs(drawn[y - 1 : y + 2, x - 1 : x + 2] - colour).sum(axis=2).min() for x, y in places])
        seen += bool((near < 200).mean() > 0.8)
    return seen


def test_the_slider_answers_what_python_says_at_that_eps(opened, made):
    coordinates = np.stack([made["x"].values, made["y"].values], axis=1)
    seen = []
    for step in (3, 40, 60):
        opened.slide_to(step)
        seen.append(opened.eps())
        (removed, of), *_ = opened.shares()
        assert of == POINTS
        assert removed == (noise.noise_until(coordinates, made["label"].values) > seen[-1]).sum()
    assert seen == sorted(set(seen))


def test_choosing_a_class_shows_and_counts_that_class_alone(opened, made):
    opened.choose("class 3")
    opened.wait(lambda: len(opened.shares()) == 2)
    of_class = made["label"].values == 3
    removed = ~made["keep"].values
    assert opened.shares() == [(removed.sum(), POINTS), ((removed & of_class).sum(), of_class.sum())]
    assert f"of {(removed & of_class).sum():,}" in opened.find(".dv-shown")[0].text
    assert all(of_class[tiles(opened)])
    opened.choose("all")
    opened.wait(lambda: len(opened.shares()) == 1)


def test_the_gallery_pages_through_all_that_is_removed_the_noisiest_first(opened, made):
    until = made["noise_until"].values
    removed = np.flatnonzero(~made["keep"].values)
    expected = removed[np.argsort(-until[removed], kind="stable")]
    first = tiles(opened)
    assert until[first].tolist() == until[expected[: len(first)]].tolist()
    assert f"of {len(removed):,}" in opened.find(".dv-shown")[0].text
    opened.driver.execute_script("arguments[0].click()", opened.find("[data-page='1']")[0])
    assert until[tiles(opened)].tolist() == until[expected[len(first) : 2 * len(first)]].tolist()


@DRAWN_BOTH_WAYS
def test_pointing_at_a_point_shows_its_image_and_what_it_is(opened, made, colour_of):
    # A stray with nothing near it, so that the mouse means no other.
    example = int(np.argmax(np.where(np.isfinite(made["noise_until"]), made["noise_until"], 0)))
    opened.wait(lambda: opened.point_at(example) or opened.find(".dv-card:not([hidden])"))
    text = opened.find(".dv-card")[0].text
    found = int(re.search(r"example (\d+)", text)[1])
    assert CLASSES[int(made["label"][found])] in text
    assert "removed" in text
    # From disk a page may draw an image and not read it: look at the screen.
    opened.wait(lambda: np.abs(_middle(opened.find(".dv-card canvas")[0]) - colour_of[found]).max() <= 40)
    place = np.array([[made[axis].values[i] for axis in "xy"] for i in (found, example)])
    assert np.hypot(*(place[0] - place[1])) < 1


def _middle(element):
    drawn = picture(element.screenshot_as_base64)
    return drawn[drawn.shape[0] // 2, drawn.shape[1] // 2]


@DRAWN_BOTH_WAYS
def test_the_map_zooms_by_button_and_by_key(opened):
    def spread():
        points = np.array([opened.script("return figure.viewer.map.at(arguments[0])", i) for i in (0, 5)])
        return float(np.hypot(*(points[0] - points[1])))

    before = spread()
    opened.driver.execute_script("arguments[0].click()", opened.find("[data-zoom=in]")[0])
    opened.wait(lambda: spread() > 1.3 * before)
    opened.find(".dv-map > canvas")[0].send_keys("0")
    opened.wait(lambda: abs(spread() - before) < 1)
    opened.find(".dv-map > canvas")[0].send_keys("+")
    opened.wait(lambda: spread() > 1.3 * before)


@DRAWN_BOTH_WAYS
def test_the_theme_of_the_page_is_followed(opened):
    def background():
        return opened.pixels()[3, 3].mean()

    for name, dark in (("dark", True), ("light", False)):
        opened.driver.execute_script(f"document.documentElement.dataset.theme = '{name}'")
        opened.wait(lambda dark=dark: (background() < 60) == dark)


def test_controls_have_names_and_the_table_says_it_as_text(opened, made):
    unnamed = opened.script(
        "return [...figure.querySelectorAll('select, input, .dv-zoom button, .dv-pager button, .dv-map > canvas')]"
        ".filter(e => !(e.labels?.length || e.ariaLabel || e.textContent.trim())).length"
    )
    assert unnamed == 0
    opened.slide_to(0)
    eps, until, label = opened.eps(), made["noise_until"].values, made["label"].values
    rows = opened.script("return [...figure.querySelectorAll('tbody td')].map(cell => cell.textContent)")
    assert [int(row.split(" of ")[0].replace(",", "")) for row in rows] == np.bincount(label[until > eps]).tolist()


@DRAWN_BOTH_WAYS
def test_the_map_shows_what_is_removed_at_the_eps_of_the_slider(opened):
    # The fewer removed points lie on top, so a smaller eps paints more of the map in their colour.
    opened.slide_to(150)
    few = _painted(opened)[1]
    opened.slide_to(0)
    opened.wait(lambda: _painted(opened)[1] > 3 * few)
    opened.slide_to(150)
    opened.wait(lambda: _painted(opened)[1] < 2 * few)


def _painted(figure):
    """How many pixels have the colour of what is kept, and that of what is removed."""
    dots = "[...figure.querySelectorAll('.dv-legend span')].map(dot => getComputedStyle(dot).backgroundColor)"
    colours = [np.array([int(part) for part in re.findall(r"\d+", dot)]) for dot in figure.script(f"return {dots}")]
    pixels = figure.pixels()
    return [int((np.abs(pixels - colour).sum(axis=2) < 60).sum()) for colour in colours[:2]]
