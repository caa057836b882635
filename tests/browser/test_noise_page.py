"""The pages on maps and noise in the built book, opened from disk: every point has its image, in files beside them."""

import numpy as np
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from viewing import Figure, picture, tiles

from dolb import results
from dolb.findings import noise

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]


def test_pointing_at_a_point_of_the_map_shows_its_image(browser, book):
    browser.open(book / "notebooks" / "02-features.html")
    chart = ".dolb-figure canvas"
    figure = Figure.__new__(Figure)
    figure.browser, figure.driver = browser, browser.driver
    figure.wait(lambda: browser.driver.find_elements(By.CSS_SELECTOR, chart))
    canvas = browser.driver.find_element(By.CSS_SELECTOR, chart)
    browser.driver.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", canvas)

    def shown():
        return browser.driver.find_elements(By.CSS_SELECTOR, "#vg-tooltip-element.visible canvas")

    for right in range(-200, 200, 5):  # across the middle of the map, until there is a point
        ActionChains(browser.driver, duration=0).move_to_element_with_offset(canvas, right, 0).perform()
        if shown():
            break
    assert shown()
    figure.wait(lambda: np.ptp(picture(shown()[0].screenshot_as_base64)) > 30)  # a picture, and not an empty square
    assert browser.errors() == []


@pytest.fixture
def figure(browser, book):
    browser.open(book / "notebooks" / "03-noise.html")
    return Figure(browser)


def test_the_viewer_starts_at_the_mask_of_the_study_with_every_point(figure):
    mask = noise.reference(results.published("noise"))
    assert figure.shares() == [(int((~mask["keep"]).sum()), mask.sizes["example"])]


def test_kept_and_removed_points_alike_have_their_image(figure):
    keep = noise.reference(results.published("noise"))["keep"].to_numpy()
    for example in (int(np.flatnonzero(keep)[-1]), tiles(figure)[0]):
        figure.wait(lambda example=example: figure.point_at(example) or figure.find(".dv-card:not([hidden]) canvas"))
        image = figure.find(".dv-card canvas")[0]
        figure.wait(lambda image=image: np.ptp(picture(image.screenshot_as_base64)) > 30)
    assert figure.browser.errors() == []
