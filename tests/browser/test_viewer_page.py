"""A reader opens the viewer from disk, without a network: the map draws, the slider answers, images show."""

import re

import numpy as np
import pytest
from selenium.webdriver.common.actions.action_builder import ActionBuilder
from selenium.webdriver.common.keys import Keys
from viewing import LOCAL, POINTS, Figure, tiles

from dolb import viewer
from dolb.filtering import noise

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]

CLASSES = [f"class {k}" for k in range(10)]


@pytest.fixture(scope="module")
def colour_of():
    """The colour of each example's image."""
    return np.random.default_rng(1).integers(0, 256, (POINTS, 3)).astype(np.uint8)


@pytest.fixture(scope="module")
def viewer_page(made, colour_of, tmp_path_factory):
    shown = viewer.examples_to_show(made)
    images = np.broadcast_to(colour_of[shown][:, None, None], (len(shown), 32, 32, 3))
    made_page = viewer.show(made, viewer.thumbnails(images, shown), CLASSES)
    return viewer.write_page(made_page, tmp_path_factory.mktemp("viewer"))


@pytest.fixture(params=["webgl", "canvas"])
def opened(request, browser, viewer_page):
    browser.open(viewer_page, f"?renderer={request.param}")
    figure = Figure(browser)
    assert figure.script("return figure.viewer.map.kind") == request.param
    return figure


def test_the_page_is_small_quiet_and_asks_nothing_of_the_network(opened, viewer_page):
    assert viewer_page.stat().st_size < viewer.MOST_BYTES
    asked = opened.browser.requests()
    assert asked
    assert [url for url in asked if not url.startswith(LOCAL)] == []
    assert opened.browser.errors() == []


def test_without_a_graphics_card_the_plain_canvas_is_taken_as_it_is_faster(browser, viewer_page):
    browser.open(viewer_page)
    figure = Figure(browser)
    drawn_by = figure.script(
        "const gl = document.createElement('canvas').getContext('webgl');"
        "return gl ? gl.getParameter(gl.getExtension('WEBGL_debug_renderer_info').UNMASKED_RENDERER_WEBGL) : 'none'"
    )
    software = drawn_by == "none" or "SwiftShader" in drawn_by
    assert figure.script("return figure.viewer.map.kind") == ("canvas" if software else "webgl")


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
        assert removed == round(POINTS * noise.noise_share(coordinates, made["label"].values, [seen[-1]])[0])
    assert seen == sorted(set(seen))


def test_it_starts_at_the_eps_that_gives_the_mask(opened, made):
    assert opened.shares() == [(int((~made["keep"]).sum()), POINTS)]
    assert ((made["noise_until"] > opened.eps()) == ~made["keep"]).all()


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


def test_pointing_at_a_point_shows_its_image_and_what_it_is(opened, made, colour_of):
    # A stray with nothing near it, so that the mouse means no other.
    example = int(np.argmax(np.where(np.isfinite(made["noise_until"]), made["noise_until"], 0)))
    opened.wait(lambda: opened.point_at(example) or opened.find(".dv-card:not([hidden])"))
    text = opened.find(".dv-card")[0].text
    found = int(re.search(r"example (\d+)", text)[1])
    assert CLASSES[int(made["label"][found])] in text
    assert "removed" in text
    shown = opened.script(
        "const image = figure.querySelector('.dv-card canvas');"
        "return [...image.getContext('2d').getImageData(16, 16, 1, 1).data].slice(0, 3)"
    )
    assert np.abs(np.array(shown) - colour_of[found]).max() <= 8  # WebP is not exact
    place = np.array([[made[axis].values[i] for axis in "xy"] for i in (found, example)])
    assert np.hypot(*(place[0] - place[1])) < 1


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


def test_the_theme_of_the_page_is_followed(opened):
    def background():
        return opened.pixels()[3, 3].mean()

    for name, dark in (("dark", True), ("light", False)):
        opened.driver.execute_script(f"document.documentElement.dataset.theme = '{name}'")
        opened.wait(lambda dark=dark: (background() < 60) == dark)


def test_controls_have_names_and_the_table_says_it_in_words(opened, made):
    unnamed = opened.script(
        "return [...figure.querySelectorAll('select, input, .dv-zoom button, .dv-pager button, .dv-map > canvas')]"
        ".filter(e => !(e.labels?.length || e.ariaLabel || e.textContent.trim())).length"
    )
    assert unnamed == 0
    opened.slide_to(0)
    eps, until, label = opened.eps(), made["noise_until"].values, made["label"].values
    rows = opened.script("return [...figure.querySelectorAll('tbody td')].map(cell => cell.textContent)")
    assert [int(row.split(" of ")[0].replace(",", "")) for row in rows] == np.bincount(label[until > eps]).tolist()


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


def test_where_half_is_removed_it_does_not_hide_what_is_kept(opened, made):
    opened.slide_to(0)
    assert (made["noise_until"].values > opened.eps()).mean() == pytest.approx(0.5, abs=0.01)

    def seen():
        kept, removed = _painted(opened)
        return removed / (kept + removed)

    # Not quite half: where points are drawn through each other, their colours mix.
    opened.wait(lambda: 0.2 < seen() < 0.65)


def test_the_slider_answers_within_a_tenth_of_a_second(opened):
    times = opened.script(
        "const step = figure.querySelector('[name=step]'); return [20, 60, 100, 140, 180, 30, 90].map(value => {"
        "  const begun = performance.now(); step.value = value;"
        "  step.dispatchEvent(new Event('input', {bubbles: true}));"
        "  return performance.now() - begun; })"
    )
    assert np.median(times) < 100


def test_a_move_of_the_mouse_looks_at_few_points(opened):
    # Fifty thousand distances would take a millisecond or more on top of what showing a card does.
    times = opened.script(
        "const canvas = figure.querySelector('.dv-map > canvas'), box = canvas.getBoundingClientRect();"
        "return Array.from({length: 100}, (_, k) => { const begun = performance.now();"
        "  const place = {clientX: box.left + box.width * ((k * 37) % 100) / 100, bubbles: true,"
        "    clientY: box.top + box.height * ((k * 53) % 100) / 100};"
        "  canvas.dispatchEvent(new PointerEvent('pointermove', place));"
        "  canvas.dispatchEvent(new MouseEvent('mousemove', place)); return performance.now() - begun; })"
    )
    assert np.median(times) < 10


def point_at_the_loneliest(figure, made):
    """Point at a stray with nothing near it, and return where on the map it is drawn, as a function."""
    example = int(np.argmax(np.where(np.isfinite(made["noise_until"]), made["noise_until"], 0)))
    figure.wait(lambda: figure.point_at(example) or figure.find(".dv-card:not([hidden])"))
    return lambda: np.array(figure.script("return figure.viewer.map.at(arguments[0])", example))


def test_dragging_moves_the_map(opened, made):
    at = point_at_the_loneliest(opened, made)
    before = at()
    corner = "const box = figure.querySelector('.dv-map > canvas').getBoundingClientRect(); return [box.left, box.top]"
    start, way = np.rint(before + opened.script(corner)), np.array([-80, -40])
    actions = ActionBuilder(opened.driver, duration=50)
    actions.pointer_action.move_to_location(*start.astype(int).tolist()).pointer_down()
    for part in (0.25, 0.5, 0.75, 1):
        actions.pointer_action.move_to_location(*(start + way * part).astype(int).tolist())
    actions.pointer_action.pointer_up()
    actions.perform()
    opened.wait(lambda: np.abs(at() - before - way).max() < 3)


def test_the_card_goes_with_its_point(opened, made):
    at = point_at_the_loneliest(opened, made)
    before = at()
    opened.find(".dv-map > canvas")[0].send_keys(*[Keys.ARROW_DOWN] * 4)  # up from the edge
    opened.wait(lambda: before[1] - at()[1] > 200)
    top = "return parseFloat(figure.querySelector('.dv-card').style.top)"
    opened.wait(lambda: abs(opened.script(top) + 20 - at()[1]) < 3)
