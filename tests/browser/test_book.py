"""A reader opens the built book from disk, without a network: pages are light, quiet and readable, and charts draw."""

import re
from collections.abc import Callable

import pytest
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.common.actions.action_builder import ActionBuilder
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select, WebDriverWait

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]

LOCAL = ("file:", "data:", "blob:", "about:")
MOST_BYTES, MOST_WORDS, MOST_WORDS_OF_A_PARAGRAPH = 2_000_000, 700, 80
LEAST_FONT_SIZE, LEAST_CONTRAST = 12, 3
NARROW = 420
# Vega's groups of data marks; axes, legends and titles are groups of other roles.
MARKS = ", ".join(f"g.mark-{kind}.role-mark path" for kind in ("symbol", "line", "rect", "bar", "area", "rule", "arc"))
DRAWN = ".dolb-chart svg.marks, .dolb-chart canvas.marks"


@pytest.fixture(scope="module")
def opened(browser, book, page):
    """The browser at a page, opened once: the tests on it look at different things, and in this order."""
    browser.resize(1440, 900)
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
        WebDriverWait(browser.driver, seconds, poll_frequency=min(0.1, seconds / 2)).until(lambda _: condition())
    except TimeoutException:
        return False
    return True


def scroll_to(browser, element: WebElement) -> None:
    browser.driver.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'});", element)


def test_page_asks_nothing_of_the_network_and_logs_no_error(opened):
    charts(opened)
    asked = opened.requests()
    assert asked, "the performance log is empty, so it shows nothing"
    assert [url for url in asked if not url.startswith(LOCAL)] == []
    assert opened.errors() == []
    assert opened.driver.execute_script("return typeof require + typeof define") == "undefinedundefined"


def test_main_figure_is_on_the_first_screen(opened, page):
    if not page.startswith("notebooks/"):
        pytest.skip("a page without an experiment")
    charts(opened)
    figures = opened.driver.find_elements(By.CSS_SELECTOR, "article .dolb-figure, article .dolb-viewer")
    assert figures[0].rect["y"] < 900


def test_page_has_a_title_and_no_leftover_markup(opened):
    article = opened.driver.find_element(By.CSS_SELECTOR, "article.bd-article")
    assert article.find_element(By.TAG_NAME, "h1").text
    for leftover in ("{glue", "{cite", "{include", "system-message"):
        assert leftover not in article.get_attribute("innerHTML")


def test_page_is_light_and_short(opened, book, page):
    assert (book / f"{page}.html").stat().st_size <= MOST_BYTES
    counts = opened.driver.execute_script(
        """
        const parts = [...document.querySelectorAll('article.bd-article :is(p, li, h1, h2, h3, h4, figcaption)')];
        return parts.filter(part => !part.closest('details, table, .dolb-chart, .dolb-viewer, li :is(p, li)'))
          .map(part => part.innerText.trim().split(/\\s+/).length);
        """
    )
    assert sum(counts) <= MOST_WORDS
    assert max(counts) <= MOST_WORDS_OF_A_PARAGRAPH


def test_every_chart_has_marks_and_words_of_a_size_to_read(opened):
    for chart in charts(opened):
        assert chart.get_attribute("role") == "img"
        assert len(chart.get_attribute("aria-label")) > 20
        if chart.find_elements(By.CSS_SELECTOR, "svg.marks"):
            assert chart.find_elements(By.CSS_SELECTOR, MARKS)
    smallest = opened.driver.execute_script(
        """
        return Math.min(...[...document.querySelectorAll('.dolb-chart svg.marks text')]
          .filter(text => text.textContent).map(text => parseFloat(getComputedStyle(text).fontSize)));
        """
    )
    assert smallest is None or smallest >= LEAST_FONT_SIZE  # none: there is no text, and JSON has no infinity
    ids = opened.driver.execute_script("return [...document.querySelectorAll('.dolb-chart [id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))


def test_a_mark_shows_its_values(opened):
    for chart in charts(opened):
        scroll_to(opened, chart)
        places = places_to_point_at(opened, chart)
        # A mark answers at once, but for a machine that is busy: most places that have none need not be waited for.
        waits = ((place, seconds) for seconds in (0.05, 0.4) for place in places)
        assert any(hover_shows_values(opened, *place, seconds) for place, seconds in waits), "no mark shows its values"


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
        const places = [...chart.querySelectorAll(marks)].flatMap(mark => {
          if (!mark.parentElement.matches('.mark-line')) return [middle(mark.getBoundingClientRect())];
          return [1, 2, 3, 4, 5, 6].map(part => {
            const on = mark.getPointAtLength(mark.getTotalLength() * part / 7).matrixTransform(mark.getScreenCTM());
            return [on.x, on.y];
          });
        }).filter(([x, y]) => x > 0 && y > 0 && x < innerWidth && y < innerHeight);
        const step = Math.max(1, Math.floor(places.length / 15));
        return places.filter((_, i) => i % step === 0);
        """,
        chart,
        MARKS,
    )


def hover_shows_values(browser, x: float, y: float, seconds: float) -> bool:
    """Move the mouse to a place in the window; moving it to an element would scroll the page."""
    actions = ActionBuilder(browser.driver, duration=0)
    actions.pointer_action.move_to_location(round(x), round(y))
    actions.perform()
    shown = "#vg-tooltip-element.visible"
    return settled(browser, lambda: bool(browser.driver.find_elements(By.CSS_SELECTOR, shown)), seconds)


def test_commands_are_copied_and_data_downloads_from_disk(opened, book, page):
    for panel in opened.driver.find_elements(By.CSS_SELECTOR, "details.dolb-provenance"):
        scroll_to(opened, panel)
        panel.find_element(By.TAG_NAME, "summary").click()
        commands = [code.text for code in panel.find_elements(By.CSS_SELECTOR, ".dolb-command code")]
        assert commands[0].startswith(("dolb sweep ", "python benchmarks/"))
        assert commands[-1].startswith("papermill ")
        button = panel.find_element(By.TAG_NAME, "button")
        button.click()
        assert settled(opened, lambda button=button: button.text == "Copied")
    for link in opened.driver.find_elements(
        By.CSS_SELECTOR, ".dolb-provenance a[download], .dolb-downloads a[download]"
    ):
        target = link.get_dom_attribute("href")
        if target.startswith("data:"):
            assert opened.driver.execute_script("return fetch(arguments[0]).then(answer => answer.text())", target)
        else:
            assert ((book / page).parent / target).is_file()


def test_in_the_dark_there_are_no_white_slabs_and_charts_can_be_read(opened):
    opened.driver.execute_script("document.documentElement.dataset.theme = 'dark'")
    light, faint = opened.driver.execute_script(
        """
        const parts = text => text.match(/[\\d.]+/g).map(Number);
        const channel = c => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
        const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
        const seen = e => e.getClientRects().length > 0;
        const slabs = [...document.querySelectorAll('.dolb-figure, .dolb-figure *, .dolb-table, .text_html')]
          .filter(e => !e.closest('svg, .dolb-viewer') && seen(e)).map(e => parts(getComputedStyle(e).backgroundColor))
          .filter(c => (c[3] ?? 1) > 0.5 && luminance(c) > 0.4).length;
        const page = luminance(parts(getComputedStyle(document.body).backgroundColor));
        const guides = '.role-axis-label text, .role-axis-title text, .role-legend-label text, .role-title text';
        const faint = [...document.querySelectorAll('.dolb-chart svg.marks :is(' + guides + ')')].filter(seen)
          .map(e => (luminance(parts(getComputedStyle(e).fill)) + 0.05) / (page + 0.05));
        return [slabs, faint.length ? Math.min(...faint) : null];
        """
    )
    opened.driver.execute_script("document.documentElement.dataset.theme = 'light'")
    assert light == 0
    assert faint is None or faint > LEAST_CONTRAST


def test_a_narrow_page_does_not_scroll_sideways(opened):
    opened.resize(NARROW, 900)
    charts(opened)
    width = opened.driver.execute_script("return document.documentElement.scrollWidth")
    opened.resize(1440, 900)
    assert width <= NARROW


def test_panels_stand_in_one_column_on_a_phone(browser, book):
    browser.resize(NARROW, 900)
    browser.open(book / "notebooks" / "01-batch-size.html")
    chart = charts(browser)[0]
    lefts = {round(cell.rect["x"]) for cell in chart.find_elements(By.CSS_SELECTOR, "g.cell > g")}
    assert len(lefts) == 1


@pytest.fixture
def verdicts(browser, book):
    browser.resize(1440, 900)
    browser.open(book / "book" / "verdicts.html")
    return browser.driver


def shown(driver) -> list[str]:
    rows = driver.find_elements(By.CSS_SELECTOR, "table.dolb-verdicts tbody tr")
    return [row.get_attribute("id") for row in rows if row.is_displayed()]


def test_verdicts_are_filtered_by_document_verdict_and_text(verdicts):
    form = verdicts.find_element(By.CSS_SELECTOR, "form.dolb-filter")
    every = shown(verdicts)
    Select(form.find_element(By.NAME, "document")).select_by_value("mccord2021")
    assert shown(verdicts) == [name for name in every if name.startswith("M")]
    form.find_element(By.NAME, "text").send_keys("best WARMUP")
    chosen = shown(verdicts)
    assert chosen
    assert all(re.search("best warmup", verdicts.find_element(By.ID, name).text) for name in chosen)
    assert form.find_element(By.TAG_NAME, "output").text == f"{len(chosen)} of {len(every)}"
    verdicts.refresh()
    WebDriverWait(verdicts, 20).until(lambda page: shown(page) == chosen)  # the choice stands in the address


def test_verdicts_are_filtered_by_outcome_and_a_chip_leads_to_its_row(verdicts, book):
    form = verdicts.find_element(By.CSS_SELECTOR, "form.dolb-filter")
    Select(form.find_element(By.NAME, "verdict")).select_by_value("replicated")
    rows = [verdicts.find_element(By.ID, name) for name in shown(verdicts)]
    assert rows
    assert {row.get_attribute("data-verdict") for row in rows} == {"replicated"}
    verdicts.get((book / "book" / "verdicts.html").as_uri() + "#G14")
    assert 0 <= verdicts.execute_script("return document.getElementById('G14').getBoundingClientRect().top") < 900
