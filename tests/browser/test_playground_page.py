"""A reader moves the playground's controls: the line, the numbers and what is to be copied follow."""

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait
from viewing import LOCAL

from dolb import recipes, viewer

pytestmark = pytest.mark.browser

HEAD = '<!doctype html><html lang=en><meta charset=utf-8><link rel=icon href="data:,"><title>Playground</title>'


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    runs = recipes.configs("warmup", "paper", part="warmups", batch_sizes=[1200, 300], warmups=[5])
    shown = viewer.rate_playground(runs, "dolb sweep warmup --scale paper --part warmups")
    path = tmp_path_factory.mktemp("playground") / "index.html"
    path.write_text(HEAD + shown.html, encoding="utf-8")
    return path


class Playground:
    def __init__(self, browser):
        self.browser, self.driver = browser, browser.driver

    def control(self, name):
        return self.driver.find_element(By.NAME, name)

    def type(self, name, text):
        self.control(name).clear()
        self.control(name).send_keys(text)

    def line(self):
        return self.driver.find_element(By.CSS_SELECTOR, ".dolb-playground path").get_attribute("d")

    def text(self, part):
        return self.driver.find_element(By.CSS_SELECTOR, f".dp-{part}").text

    def script(self, code):
        return self.driver.execute_script(code)


@pytest.fixture
def opened(browser, written):
    browser.open(written)
    return Playground(browser)


def test_it_starts_at_the_first_run_and_asks_nothing_of_the_network(opened):
    # 0.0125 for a batch of 32, linear: 0.0125 x 1200 / 32. Of 50,000 images 41 full batches and a rest.
    assert opened.text("said") == "Peak rate 0.469, 42 updates an epoch."
    assert "batch_size=1200" in opened.text("run")
    assert "--batch-sizes 1200 --lrs 0.0125 --warmups 5" in opened.text("command")
    assert [url for url in opened.browser.requests() if not url.startswith(LOCAL)] == []
    assert opened.browser.errors() == []
    unlabelled = """
      return [...document.querySelectorAll('.dolb-playground :is(input, select)')]
        .filter((control) => !control.labels.length || !control.labels[0].textContent.trim()).length"""
    assert opened.script(unlabelled) == 0
    # The first of 5 x 42 updates of warmup has a 210th of the peak; two milestones leave a hundredth.
    said = "The learning rate over 90 epochs. First 0.00223, peak 0.469, last 0.00469."
    assert opened.driver.find_element(By.CSS_SELECTOR, ".dolb-playground svg").get_attribute("aria-label") == said


@pytest.mark.parametrize(
    ("slider", "said", "run"),
    [
        ("batch_size", "Peak rate 0.8, 25 updates an epoch.", "batch_size=2048"),
        ("lr", "Peak rate 0.6, 42 updates an epoch.", "lr=0.016"),
        ("warmup_epochs", "Peak rate 0.469, 42 updates an epoch.", "warmup_epochs=5.5"),
    ],
)
def test_an_arrow_key_on_a_slider_moves_the_line_the_text_and_the_lines_to_copy(opened, slider, said, run):
    before = opened.line(), opened.text("command")
    opened.control(slider).send_keys(Keys.ARROW_RIGHT)
    assert opened.text("said") == said
    assert run in opened.text("run")
    assert opened.text("command") != before[1]
    # Axes end at the peak, so that another base rate is the same line with other numbers on the axis.
    assert (opened.line() == before[0]) == (slider == "lr")


def test_a_decay_shows_its_own_field_and_leaves_the_command(opened):
    assert not opened.control("power").is_displayed()
    opened.control("decay").send_keys("polynomial")
    assert opened.control("power").is_displayed()
    assert not opened.control("milestones").is_displayed()
    assert opened.text("how") == "No option of dolb sweep warmup: decay other than step:30,60. In Python:"
    assert 'decay="polynomial:2"' in opened.text("command")
    opened.type("epochs", "4")  # no warmup is longer than training
    assert "warmup_epochs=4," in opened.text("run")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("milestones", "60,30", "Accepted: rising epochs with commas, such as 30,60."),
        ("milestones", "30,", "Accepted: rising epochs with commas, such as 30,60."),
        ("examples", "1199", "A batch is larger than the training set."),
    ],
)
def test_what_cannot_be_run_is_said_and_not_offered_to_copy(opened, name, text, said):
    opened.type(name, text)
    assert opened.text("said") == said
    assert opened.text("command") == ""


def test_a_button_copies_its_line(opened):
    opened.driver.find_elements(By.CSS_SELECTOR, ".dolb-playground button")[1].click()
    opened.type("milestones", Keys.CONTROL + "v")
    assert opened.control("milestones").get_attribute("value").startswith("dolb sweep warmup --scale paper")


@pytest.mark.parametrize("width", [1440, 420])
def test_the_figure_fits_the_page(opened, width):
    opened.browser.resize(width, 900)
    try:
        assert opened.script("return document.documentElement.scrollWidth <= innerWidth")
        box = "return document.querySelector('.dolb-playground svg').viewBox.baseVal.width"
        WebDriverWait(opened.driver, 20).until(lambda _: width - 60 < opened.script(box) <= width)  # it is drawn anew
    finally:
        opened.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
