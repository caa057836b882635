"""A person reviews on the page of `dolb view`: lassoes points, keeps or drops them, saves what Python reads."""

import json
import re

import numpy as np
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.actions.action_builder import ActionBuilder
from selenium.webdriver.common.keys import Keys
from viewing import LOCAL, Figure, tiles

from dolb import data, map_pages
from dolb.filtering import masks, noise

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def digits():
    return data.load("digits")


@pytest.fixture(scope="module")
def until(digits, coordinates):
    return noise.noise_until(coordinates, digits.train_labels)


@pytest.fixture(scope="module")
def coordinates(digits):
    """A map that needs no training: the first two principal components of the pixels."""
    pixels = digits.train_images.reshape(len(digits.train_labels), -1).astype(float)
    centred = pixels - pixels.mean(axis=0)
    return centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T


@pytest.fixture(scope="module")
def start(until):
    return until <= np.quantile(until, 0.95)


@pytest.fixture(scope="module")
def review_page(digits, coordinates, until, start, tmp_path_factory):
    folder = tmp_path_factory.mktemp("review")
    more = {"coordinates": coordinates, "noise_until": until}
    return map_pages.write(masks.save_keep(folder / "keep.nc", start, digits, "network", **more), folder)


class Reviewing(Figure):
    """The page as a reviewer meets it, and the folder of what is downloaded."""

    def __init__(self, browser, folder):
        super().__init__(browser)
        self.folder = folder
        where = {"behavior": "allow", "downloadPath": str(folder)}
        self.driver.execute_cdp_cmd("Browser.setDownloadBehavior", where)

    def press(self, name):
        self.driver.execute_script("arguments[0].click()", self.find(f"[data-review={name}]")[0])

    def places(self, n):
        """Return where on the map each of n examples is drawn."""
        at = "return Array.from({length: arguments[0]}, (_, i) => [...figure.viewer.map.at(i)])"
        return np.array(self.script(at, n))

    def drag_around(self, left, top, right, bottom):
        """Drag the mouse around a rectangle of the map."""
        self.script("figure.querySelector('.dv-map').scrollIntoView({block: 'center', behavior: 'instant'})")
        corner = "const box = figure.querySelector('.dv-map > canvas').getBoundingClientRect();"
        x, y = self.script(corner + "return [box.left, box.top]")
        actions = ActionBuilder(self.driver, duration=30)
        mouse = actions.pointer_action
        mouse.move_to_location(round(x + left), round(y + top)).pointer_down()
        for across, down in ((right, top), (right, bottom), (left, bottom)):
            mouse.move_to_location(round(x + across), round(y + down))
        mouse.pointer_up()
        actions.perform()

    def drag_with(self, key, rectangle):
        ActionChains(self.driver).key_down(key).perform()
        self.drag_around(*rectangle)
        ActionChains(self.driver).key_up(key).perform()

    def selected(self):
        return sorted(self.script("return figure.viewer.review.selection"))

    def counts(self):
        """Return what the page says: selected, marked to keep, marked to drop, dropped in all, of how many."""
        text = self.find(".dv-decided")[0].text.replace(",", "")
        said = r"(\d+) selected. Marked: (\d+) to keep (\d+) to drop. In all (\d+) of (\d+)"
        return [int(number) for number in re.search(said, text).groups()]

    def save(self):
        """Save, and return the path of the file that was downloaded."""
        before = set(self.folder.glob("*.json"))
        self.press("save")
        self.wait(lambda: set(self.folder.glob("*.json")) - before)
        return (set(self.folder.glob("*.json")) - before).pop()


@pytest.fixture
def opened(browser, review_page, tmp_path):
    browser.open(review_page)
    return Reviewing(browser, tmp_path)


def a_part_of(places):
    """Return a rectangle around a part of the map."""
    return (*np.quantile(places, 0.35, axis=0), *np.quantile(places, 0.6, axis=0))


def inside(places, rectangle, margin):
    """Return which examples lie in a rectangle made larger by a margin."""
    low, high = np.array(rectangle[:2]) - margin, np.array(rectangle[2:]) + margin
    return np.flatnonzero(((places > low) & (places < high)).all(axis=1))


def test_what_is_lassoed_and_dropped_is_saved_with_what_the_mask_removes(opened, digits, start):
    places = opened.places(len(start))
    opened.press("lasso")
    opened.drag_around(*a_part_of(places))
    opened.wait(lambda: opened.selected())
    chosen = np.array(opened.selected())
    # The mouse moves by whole pixels, so two at the edge may fall on either side.
    assert set(inside(places, a_part_of(places), -2)) <= set(chosen) <= set(inside(places, a_part_of(places), 2))
    assert len(chosen) > 50
    assert set(tiles(opened)) <= set(chosen)
    assert f"of {len(chosen):,}" in opened.find(".dv-shown")[0].text
    opened.press("drop")
    expected = start.copy()
    expected[chosen] = False
    assert opened.counts() == [len(chosen), 0, len(chosen), int((~expected).sum()), len(start)]
    path = opened.save()
    np.testing.assert_array_equal(masks.load_keep(path, digits), expected)
    said = json.loads(path.read_text())
    assert said["data_fingerprint"] == digits.fingerprint
    assert said["marked"] == {"keep": [], "drop": chosen.tolist()}
    assert opened.browser.errors() == []
    assert [url for url in opened.browser.requests() if not url.startswith(LOCAL)] == []


def test_what_the_mask_removes_can_be_kept(opened, digits):
    opened.press("view")
    assert opened.selected() == list(range(len(digits.train_labels)))
    opened.press("keep")
    assert masks.load_keep(opened.save(), digits).all()


def test_undo_takes_back_one_decision_and_clear_all_marks(opened, start):
    first = opened.counts()
    opened.press("view")
    opened.press("keep")
    opened.press("drop")
    opened.press("undo")
    assert opened.counts()[1:] == [len(start), 0, 0, len(start)]
    opened.press("clear")
    opened.press("none")
    assert opened.counts() == first
    opened.press("undo")
    assert opened.counts()[1] == len(start)


def test_shift_lassoes_without_the_button_ctrl_adds_and_the_map_stays(opened, start):
    places = opened.places(len(start))
    rectangle = a_part_of(places)
    opened.drag_with(Keys.SHIFT, rectangle)
    opened.wait(lambda: opened.selected())
    first = set(opened.selected())
    opened.press("lasso")
    beyond = (rectangle[2] + 2, rectangle[1], rectangle[2] + 80, rectangle[3])
    opened.drag_with(Keys.CONTROL, beyond)
    opened.wait(lambda: len(opened.selected()) > len(first))
    assert first <= set(opened.selected())
    assert np.abs(opened.places(len(start)) - places).max() < 1
    opened.find(".dv-map > canvas")[0].send_keys(Keys.ESCAPE)
    assert opened.selected() == []


def test_marks_stay_when_the_slider_moves_and_the_rest_follows_it(opened, digits, until):
    noisiest = opened.find(".dv-tiles button")[0]
    kept = int(noisiest.get_attribute("data-example"))
    noisiest.send_keys("k")
    opened.slide_to(0)
    expected = until <= opened.eps()
    assert not expected[kept]
    expected[kept] = True
    path = opened.save()
    np.testing.assert_array_equal(masks.load_keep(path, digits), expected)
    assert json.loads(path.read_text())["not_marked"] == {"by": "eps", "eps": opened.eps()}


def test_all_of_it_can_be_done_with_the_keyboard(opened, start):
    first = opened.find(".dv-tiles button")[0]
    example = int(first.get_attribute("data-example"))
    first.send_keys("k")
    focused = opened.driver.switch_to.active_element
    assert int(focused.get_attribute("data-example")) == example
    assert "marked: keep" in focused.get_attribute("aria-label")
    focused.send_keys("d")
    assert opened.counts()[1:3] == [0, 1]
    opened.find("[data-review=undo]")[0].send_keys(Keys.ENTER)
    opened.find("[data-review=view]")[0].send_keys(Keys.SPACE)
    opened.wait(lambda: len(opened.selected()) == len(start))
    opened.find(".dv-map > canvas")[0].send_keys("k")
    assert opened.counts()[1:3] == [len(start), 0]
    before = set(opened.folder.glob("*.json"))
    opened.find("[data-review=save]")[0].send_keys(Keys.ENTER)
    opened.wait(lambda: set(opened.folder.glob("*.json")) - before)


def test_a_class_cannot_be_dropped_whole(opened, digits):
    opened.choose("3")
    opened.press("view")
    opened.press("drop")
    opened.press("save")
    assert "Not saved: every example of 3 is dropped" in opened.find(".dv-decided")[0].text
    assert list(opened.folder.iterdir()) == []
