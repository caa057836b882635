"""A reader moves the controls of the panel on page 11: its curves follow."""

import shutil

import pytest
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select

from dolb.profiling.simulator.whatif import whatif_data, whatif_html

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def panel(browser, repo_root, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whatif")
    shutil.copy(repo_root / "book" / "_static" / "whatif.js", folder)
    head = "<!doctype html><html lang=en><meta charset=utf-8><title>What if</title>"
    (folder / "index.html").write_text(head + whatif_html(whatif_data(), static="."), encoding="utf-8")
    browser.resize(1000, 1200)
    browser.open(folder / "index.html")
    return browser.driver


def curve(panel, library):
    return panel.find_element("css selector", f"path.{library}").get_attribute("d")


def control(panel, name):
    return panel.find_element("name", name)


def choose(panel, name, option):
    Select(control(panel, name)).select_by_visible_text(option)


def test_the_panel_draws_both_curves_says_simulated_labels_its_controls_and_complains_of_nothing(browser, panel):
    assert curve(panel, "ddp") != curve(panel, "horovod")
    assert panel.find_element("css selector", "[aria-live]").text.startswith("Simulated, ")
    assert browser.errors() == []
    unlabelled = panel.execute_script(
        "return [...document.querySelectorAll('.dolb-whatif input, .dolb-whatif select')]"
        ".filter((control) => !control.labels.length || !control.labels[0].textContent.trim()).length"
    )
    assert unlabelled == 0


def test_the_keyboard_alone_moves_a_curve(panel):
    before = curve(panel, "ddp"), curve(panel, "horovod")
    control(panel, "response_cache").send_keys(Keys.SPACE)
    assert curve(panel, "ddp") == before[0]
    assert curve(panel, "horovod") != before[1]
    control(panel, "bandwidth").send_keys(Keys.HOME)
    assert curve(panel, "ddp") != before[0]


def test_another_gpu_has_other_curves_and_gives_way_where_its_speed_on_a_network_is_not_known(panel):
    before = curve(panel, "ddp"), curve(panel, "horovod")
    choose(panel, "gpu", "H200, fp32")
    assert control(panel, "speed").get_attribute("value") == "755.923"
    assert curve(panel, "ddp") != before[0]
    assert curve(panel, "horovod") != before[1]
    choose(panel, "gpu", "V100, fp32")
    assert (curve(panel, "ddp"), curve(panel, "horovod")) == before
    choose(panel, "model", "vgg11")
    assert control(panel, "gpu").get_attribute("value") == "H200, fp32"
    choose(panel, "model", "resnet50")
    choose(panel, "gpu", "V100, fp32")


def test_a_cluster_of_ones_own_is_typed_in(panel):
    before = curve(panel, "ddp")
    for name, value in {"speed": "1200", "gbit": "25", "latency": "30"}.items():
        control(panel, name).clear()
        control(panel, name).send_keys(value)
    assert curve(panel, "ddp") != before


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_lines_change_with_the_theme(panel, theme):
    panel.execute_script(f"document.documentElement.dataset.theme = '{theme}'")
    stroke = panel.execute_script("return getComputedStyle(document.querySelector('path.ddp')).stroke")
    assert stroke == {"light": "rgb(0, 114, 178)", "dark": "rgb(86, 180, 233)"}[theme]
