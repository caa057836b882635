"""A reader opens the built book from disk, without a network: pages are quiet, charts draw and answer the mouse."""

from collections.abc import Callable

import pytest
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]

LOCAL = ("file:", "data:", "blob:", "about:")
# Vega's groups of data marks; axes, legends and titles are groups of other roles.
MARKS = (
    "g.mark-symbol.role-mark path, g.mark-line.role-mark path, g.mark-rect.role-mark path, g.mark-bar.role-mark path"
)
DRAWN = ".dolb-chart svg.marks, .dolb-chart canvas.marks"


def charts(browser) -> list[WebElement]:
    """Return the page's charts once all of them are drawn."""
    found = browser.driver.find_elements(By.CLASS_NAME, "dolb-chart")
    WebDriverWait(browser.driver, 20).until(
        lambda driver: len(driver.find_elements(By.CSS_SELECTOR, DRAWN)) == len(found),
        f"{len(found)} charts on the page, not all drawn",
    )
    return found


def settled(browser, condition: Callable[[], bool], seconds: float = 2) -> bool:
    try:
        WebDriverWait(browser.driver, seconds, poll_frequency=0.1).until(lambda _: condition())
    except TimeoutException:
        return False
    return True


def picture(browser, chart: WebElement) -> str:
    """Return what is drawn: the SVG's text or the canvas's pixels."""
    return browser.driver.execute_script(
        "const mark = arguments[0].querySelector('svg.marks, canvas.marks');"
        "return mark.tagName === 'CANVAS' ? mark.toDataURL() : mark.outerHTML;",
        chart,
    )


def scroll_to(browser, element: WebElement) -> None:
    browser.driver.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'});", element)


def tooltip_visible(browser) -> bool:
    return bool(browser.driver.find_elements(By.CSS_SELECTOR, "#vg-tooltip-element.visible"))


def points_to_try(chart: WebElement) -> list[tuple[WebElement, int, int]]:
    """Return elements and offsets from their centres where a mark may be: marks of an SVG, a grid over a canvas."""
    marks = chart.find_elements(By.CSS_SELECTOR, MARKS)
    if marks:
        return [(mark, 0, 0) for mark in marks[:: max(1, len(marks) // 12)]]
    canvas = chart.find_element(By.CSS_SELECTOR, "canvas.marks")
    width, height = canvas.size["width"], canvas.size["height"]
    return [(canvas, int(width * x / 20), int(height * y / 20)) for x in range(-8, 9, 2) for y in range(-8, 9, 2)]


def test_page_asks_nothing_of_the_network_and_logs_no_error(browser, book, page):
    browser.open(book / f"{page}.html")
    charts(browser)
    asked = browser.requests()
    assert asked, "the performance log is empty, so it shows nothing"
    assert [url for url in asked if not url.startswith(LOCAL)] == []
    assert browser.errors() == []
    assert browser.driver.execute_script("return typeof require + typeof define") == "undefinedundefined"


def test_page_has_a_title_and_no_leftover_markup(browser, book, page):
    browser.open(book / f"{page}.html")
    article = browser.driver.find_element(By.CSS_SELECTOR, "article.bd-article")
    assert article.find_element(By.TAG_NAME, "h1").text
    for leftover in ("{glue", "{cite", "system-message"):
        assert leftover not in article.get_attribute("innerHTML")


def test_every_chart_has_marks_and_words(browser, book, page):
    browser.open(book / f"{page}.html")
    for chart in charts(browser):
        assert chart.get_attribute("role") == "img"
        assert len(chart.get_attribute("aria-label")) > 20
        if chart.find_elements(By.CSS_SELECTOR, "svg.marks"):
            assert chart.find_elements(By.CSS_SELECTOR, MARKS)
    ids = browser.driver.execute_script("return [...document.querySelectorAll('[id]')].map(e => e.id).filter(Boolean)")
    drawn = [name for name in ids if name.startswith("dolb-chart")]
    assert len(drawn) == len(set(drawn))


def test_charts_answer_the_mouse(browser, book, page):
    browser.open(book / f"{page}.html")
    for chart in charts(browser):
        scroll_to(browser, chart)
        assert any(hover_shows_values(browser, *point) for point in points_to_try(chart)), "no mark shows its values"
        before = picture(browser, chart)
        assert any(act(browser, chart, before) for act in (click_legend, zoom)), "neither legend nor wheel changes it"


def hover_shows_values(browser, element: WebElement, x: int, y: int) -> bool:
    ActionChains(browser.driver).move_to_element_with_offset(element, x, y).perform()
    return settled(browser, lambda: tooltip_visible(browser), seconds=0.5)


def click_legend(browser, chart: WebElement, before: str) -> bool:
    entries = chart.find_elements(By.CSS_SELECTOR, "g.role-legend-symbol path, g.role-legend-label text")
    if not entries:
        return False
    ActionChains(browser.driver).move_to_element(entries[0]).click().perform()
    return settled(browser, lambda: picture(browser, chart) != before)


def zoom(browser, chart: WebElement, before: str) -> bool:
    # The wheel is sent to the page as a script event: the driver's own scroll is taken by the scrolling page.
    browser.driver.execute_script(
        """
        const mark = arguments[0].querySelector('svg.marks, canvas.marks'), box = mark.getBoundingClientRect();
        const inside = mark.querySelector('g.role-frame .background, .background') || mark;
        inside.dispatchEvent(new WheelEvent('wheel', {
          deltaY: -240, bubbles: true, cancelable: true,
          clientX: box.left + box.width * 0.4, clientY: box.top + box.height * 0.4 }));
        """,
        chart,
    )
    return settled(browser, lambda: picture(browser, chart) != before)


def test_command_is_copied_and_data_downloads_from_disk(browser, book, page):
    browser.open(book / f"{page}.html")
    for panel in browser.driver.find_elements(By.CSS_SELECTOR, "details.dolb-provenance"):
        scroll_to(browser, panel)
        panel.find_element(By.TAG_NAME, "summary").click()
        assert panel.find_element(By.CSS_SELECTOR, ".dolb-command code").text.startswith(("papermill ", "dolb "))
        button = panel.find_element(By.TAG_NAME, "button")
        button.click()
        assert settled(browser, lambda button=button: button.text == "Copied")
        for link in panel.find_elements(By.CSS_SELECTOR, "a[download]"):
            read = "return fetch(arguments[0].href).then(answer => answer.text())"
            assert "," in browser.driver.execute_script(read, link)
