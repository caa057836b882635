"""A reader opens the built book from disk, without a network: pages are quiet, charts draw and answer the mouse."""

from collections.abc import Callable

import pytest
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.actions.action_builder import ActionBuilder
from selenium.webdriver.common.actions.wheel_input import ScrollOrigin
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


@pytest.fixture(scope="module")
def opened(browser, book, page):
    """The browser at a page, opened once: the tests on it look at different things, and in this order."""
    browser.open(book / f"{page}.html")
    return browser


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


def pointer(browser, x: float, y: float, click: bool = False) -> None:
    """Move the mouse to a place in the window; moving it to an element would scroll the page."""
    actions = ActionBuilder(browser.driver, duration=0)
    actions.pointer_action.move_to_location(int(x), int(y))
    if click:
        actions.pointer_action.click()
    actions.perform()


def places_to_point_at(browser, chart: WebElement) -> list[list[float]]:
    """Return places in the window where a mark is (on an SVG) or may be (on a canvas)."""
    return browser.driver.execute_script(
        """
        const [chart, marks] = arguments, canvas = chart.querySelector('canvas.marks');
        const middle = box => [box.left + box.width / 2, box.top + box.height / 2];
        if (canvas) {
          const box = canvas.getBoundingClientRect(), steps = [...Array(15).keys()].map(i => (i + 1) / 16);
          const far = place => Math.hypot(place[0] - middle(box)[0], place[1] - middle(box)[1]);
          return steps.flatMap(x => steps.map(y => [box.left + x * box.width, box.top + y * box.height]))
            .sort((a, b) => far(a) - far(b));
        }
        const places = [...chart.querySelectorAll(marks)].map(mark => {
          if (!mark.parentElement.matches('.mark-line')) return middle(mark.getBoundingClientRect());
          const on = mark.getPointAtLength(mark.getTotalLength() / 3).matrixTransform(mark.getScreenCTM());
          return [on.x, on.y];
        });
        const step = Math.max(1, Math.floor(places.length / 15));
        return places.filter((_, i) => i % step === 0);
        """,
        chart,
        MARKS,
    )


def test_page_asks_nothing_of_the_network_and_logs_no_error(opened):
    charts(opened)
    asked = opened.requests()
    assert asked, "the performance log is empty, so it shows nothing"
    assert [url for url in asked if not url.startswith(LOCAL)] == []
    assert opened.errors() == []
    assert opened.driver.execute_script("return typeof require + typeof define") == "undefinedundefined"


def test_page_has_a_title_and_no_leftover_markup(opened):
    article = opened.driver.find_element(By.CSS_SELECTOR, "article.bd-article")
    assert article.find_element(By.TAG_NAME, "h1").text
    for leftover in ("{glue", "{cite", "system-message"):
        assert leftover not in article.get_attribute("innerHTML")


def test_every_chart_has_marks_and_words(opened):
    for chart in charts(opened):
        assert chart.get_attribute("role") == "img"
        assert len(chart.get_attribute("aria-label")) > 20
        if chart.find_elements(By.CSS_SELECTOR, "svg.marks"):
            assert chart.find_elements(By.CSS_SELECTOR, MARKS)
        for drawn in chart.find_elements(By.CSS_SELECTOR, ".vega-embed"):  # none must be scrolled to be seen whole
            assert int(drawn.get_attribute("scrollWidth")) <= int(drawn.get_attribute("clientWidth"))
    ids = opened.driver.execute_script("return [...document.querySelectorAll('[id]')].map(e => e.id).filter(Boolean)")
    drawn = [name for name in ids if name.startswith("dolb-chart")]
    assert len(drawn) == len(set(drawn))


def test_charts_answer_the_mouse(opened):
    for chart in charts(opened):
        scroll_to(opened, chart)
        places = places_to_point_at(opened, chart)
        place = next((place for place in places if hover_shows_values(opened, *place)), None)
        assert place is not None, "no mark shows its values"
        if not nothing_to_choose(chart):
            assert click_legend(opened, chart) or zoom(opened, chart, *place), "neither legend nor wheel changes it"


def hover_shows_values(browser, x: float, y: float) -> bool:
    pointer(browser, x, y)
    return settled(browser, lambda: tooltip_visible(browser), seconds=0.4)


def nothing_to_choose(chart: WebElement) -> bool:
    """Whether a chart has no parameter, or every legend has one entry, as while only one network is published."""
    if '"params"' not in chart.get_attribute("innerHTML"):
        return True
    legends = chart.find_elements(By.CSS_SELECTOR, "g.role-legend")
    entries = [len(legend.find_elements(By.CSS_SELECTOR, "g.role-legend-label text")) for legend in legends]
    return bool(entries) and max(entries) == 1


def click_legend(browser, chart: WebElement) -> bool:
    for entry in chart.find_elements(By.CSS_SELECTOR, "g.role-legend-label text"):
        scroll_to(browser, entry)  # of a tall chart the legend may be above the window
        before = picture(browser, chart)
        box = browser.driver.execute_script("return arguments[0].getBoundingClientRect()", entry)
        pointer(browser, box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, click=True)
        if settled(browser, lambda before=before: picture(browser, chart) != before):
            return True
    return False


def zoom(browser, chart: WebElement, x: float, y: float) -> bool:
    scroll_to(browser, chart)
    hover_shows_values(browser, x, y)  # Vega takes the wheel for the panel that the pointer entered last
    before = picture(browser, chart)
    here = ScrollOrigin.from_viewport(int(x), int(y))
    ActionChains(browser.driver).scroll_from_origin(here, 0, -240).perform()
    return settled(browser, lambda: picture(browser, chart) != before)


def test_command_is_copied_and_data_downloads_from_disk(opened):
    for panel in opened.driver.find_elements(By.CSS_SELECTOR, "details.dolb-provenance"):
        scroll_to(opened, panel)
        panel.find_element(By.TAG_NAME, "summary").click()
        assert panel.find_element(By.CSS_SELECTOR, ".dolb-command code").text.startswith(
            ("papermill ", "dolb ", "python benchmarks/")
        )
        button = panel.find_element(By.TAG_NAME, "button")
        button.click()
        assert settled(opened, lambda button=button: button.text == "Copied")
        for link in panel.find_elements(By.CSS_SELECTOR, "a[download]"):
            read = "return fetch(arguments[0].href).then(answer => answer.text())"
            assert "," in opened.driver.execute_script(read, link)
