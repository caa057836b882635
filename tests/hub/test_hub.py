"""What a user of the hub meets: a login that refuses others, JupyterLab with notebooks, charts without a network."""

import contextlib
import os
import re
import shutil
import stat
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import nbformat
import numpy as np
import pytest
from committing import commit
from entering import log_in
from selenium.common.exceptions import TimeoutException, WebDriverException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait
from viewing import picture

from dolb import data
from dolb.filtering import masks

PARAMETERS = """scale = "demo"
archs = ["smallnet-4"]
batch_sizes = [256, 1024]
lrs = {rates}
seeds = [0]
epochs = 2
device = "cpu"
data_dir = store = time_limit = None"""
CHART = ".jp-RenderedVegaCommon5 svg"
KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
REVIEW = """from dolb import data
from dolb.filtering import review

review.widget("mine.nc", data.load("digits"))"""


def test_a_wrong_password_is_refused(hub):
    assert log_in(hub, hub.users[0], "wrong")[1].status_code == 403


def test_an_account_that_is_not_named_is_refused(hub):
    assert log_in(hub, hub.stranger)[1].status_code == 403


def test_secrets_are_for_the_hub_alone(hub):
    assert stat.S_IMODE(hub.state.stat().st_mode) == 0o700
    for name in ("cookie-secret", "jupyterhub.sqlite"):
        assert stat.S_IMODE((hub.state / name).stat().st_mode) == 0o600


def test_a_pull_brings_what_is_new_and_keeps_a_users_edits(hub, python, repo_root):
    user = hub.users[1]
    settings = {
        "HOME": user.home,
        "PATH": f"{python.parent}:{os.environ['PATH']}",
        "DOLB_HUB_REPOSITORY": f"file://{hub.repository}",
        "DOLB_HUB_BRANCH": "main",
        "MEM_LIMIT": 6 << 30,
    }
    server = [repo_root / "deploy" / "jupyterhub" / "user-server", "true"]  # in place of JupyterLab
    start = ["runuser", "-u", user.name, "--", "env", *(f"{name}={value}" for name, value in settings.items()), *server]
    subprocess.run(start, check=True, cwd=user.home)
    edited, other = (user.home / "dolb" / "notebooks" / name for name in ("01-batch-size.ipynb", "02-features.ipynb"))
    edited.write_text(edited.read_text().replace("published", "demo", 1))
    shutil.copy(hub.repository / "notebooks" / "10-critical-batch.ipynb", hub.repository / "notebooks" / other.name)
    commit(hub.repository)
    kept = edited.read_text()
    subprocess.run(start, check=True, cwd=user.home)
    assert edited.read_text() == kept
    assert other.read_text() == (hub.repository / "notebooks" / other.name).read_text()


class Lab:
    """JupyterLab with a notebook open, as a user meets it."""

    def __init__(self, browser):
        self.browser, self.driver = browser, browser.driver

    def find(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def wait(self, condition, seconds=60):
        # JupyterLab draws cells anew while a notebook opens and runs: what was found may be gone or not yet be there.
        waiting = WebDriverWait(
            self.driver, seconds, poll_frequency=0.2, ignored_exceptions=[WebDriverException, IndexError]
        )
        return waiting.until(lambda _: condition())

    def log_in(self, hub, account):
        self.driver.get(f"{hub.url}/hub/login")
        self.wait(lambda: self.find("#password_input"))
        self.find("#username_input")[0].send_keys(account.name)
        self.find("#password_input")[0].send_keys(account.password, Keys.ENTER)
        self.wait(lambda: f"/user/{account.name}/lab" in self.driver.current_url, 90)

    def open(self, hub, account, notebook):
        self.driver.get(f"{hub.url}/user/{account.name}/lab/tree/{notebook}?reset")
        self.wait(lambda: self.find(".jp-Notebook .jp-CodeCell .cm-content"))
        self.wait(lambda: self.find(".jp-NotebookPanel [data-status=idle]"))

    def set_parameters(self, text):
        """Write into the first code cell, as from a clipboard: typed brackets would close themselves."""
        self.wait(self.edits_first_code)
        ActionChains(self.driver).key_down(Keys.CONTROL).send_keys("a").key_up(Keys.CONTROL).perform()
        self.driver.execute_cdp_cmd("Input.insertText", {"text": text})
        self.wait(lambda: self.find(".jp-CodeCell .cm-content")[0].text == text)

    def edits_first_code(self):
        """Click into the first code cell, and tell whether the keys go there now."""
        first = self.find(".jp-CodeCell .cm-content")[0]
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", first)
        first.click()
        return self.driver.switch_to.active_element == self.find(".jp-CodeCell .cm-content")[0]

    def run_all(self):
        """Run all cells to their end. JupyterLab lets the command fall while it is not yet connected to the kernel."""
        before = self.prompts()

        def ran():
            self.choose("Run", "Run All Cells")
            with contextlib.suppress(TimeoutException):
                self.wait(lambda: "*" in self.prompts(), 5)
            self.wait(lambda: "*" not in self.prompts(), 120)
            return self.prompts() != before and "[ ]" not in self.prompts()

        self.wait(ran, 300)
        assert not self.find("[data-mime-type='application/vnd.jupyter.error']")

    def prompts(self):
        """Return the numbers of the code cells; a star stands for one that is to run."""
        return " ".join(one.text for one in self.find(".jp-CodeCell .jp-InputArea-prompt"))

    def choose(self, menu, item):
        ActionChains(self.driver).send_keys(Keys.ESCAPE).perform()  # a click would close a menu that was left open
        for selector, text in ((".lm-MenuBar-itemLabel", menu), (".lm-Menu-itemLabel", item)):
            (found,) = self.wait(lambda s=selector, t=text: [one for one in self.find(s) if one.text == t], 15)
            found.click()

    def press(self, button):
        (found,) = self.wait(lambda: [one for one in self.find("button.jupyter-button") if one.text == button])
        found.click()

    def written(self):
        return " ".join(one.text for one in self.find(".jp-OutputArea-output"))


@pytest.fixture(scope="module")
def lab(hub, browser):
    lab = Lab(browser)
    lab.log_in(hub, hub.users[0])
    return lab


@pytest.fixture
def nothing_outside(hub, lab):
    """Watch what the pages of a test ask for."""
    lab.browser.requests()
    yield
    asked = [urlsplit(url) for url in lab.browser.requests()]
    assert {url.netloc for url in asked if url.scheme not in ("data", "blob", "about")} == {urlsplit(hub.url).netloc}


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.usefixtures("nothing_outside")
def test_a_user_runs_a_notebook_and_sees_its_chart_and_another_rate_makes_only_new_runs(hub, lab):
    user = hub.users[0]
    lab.open(hub, user, "dolb/notebooks/01-batch-size.ipynb")
    lab.set_parameters(PARAMETERS.format(rates="[0.1]"))
    lab.run_all()
    # Some JupyterLabs draw what is out of sight without a size.
    chart = lab.wait(lambda: next((chart for chart in lab.find(CHART) if chart.size["width"]), None))
    lab.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", chart)
    pixels = picture(chart.screenshot_as_base64)
    assert ((pixels.max(axis=2) - pixels.min(axis=2)) > 60).sum() > 100  # a line and its points have a colour
    first = made(user)
    assert first

    lab.set_parameters(PARAMETERS.format(rates="[0.1, 0.5]"))
    lab.run_all()
    runs = int(lab.wait(lambda: re.search(rf"{len(first)} of (\d+) runs are in", lab.written()))[1])
    lab.wait(lambda: len(made(user)) == runs == len(first) + 2)  # another rate for each of two batch sizes
    assert first.items() <= made(user).items()
    assert not lab.find(".Toastify__toast")  # no question whether to fetch news


def made(user):
    """Return when each run in the user's store was written."""
    return {path.name: path.stat().st_mtime_ns for path in (user.home / "dolb-store").glob("*.nc")}


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.usefixtures("nothing_outside")
def test_a_user_reviews_a_map_and_finds_the_mask(hub, lab):
    home, digits = hub.users[0].home, data.load("digits")
    pixels = digits.train_images.reshape(len(digits.train_labels), -1).astype(float)
    place = pixels[:, [20, 43]] + np.random.default_rng(0).random((len(pixels), 2))
    masks.save_keep(home / "mine.nc", np.ones(len(place), dtype=bool), digits, "all", coordinates=place)
    nbformat.write(
        nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(REVIEW)], metadata=KERNEL), home / "review.ipynb"
    )
    for name in ("mine.nc", "review.ipynb"):
        shutil.chown(home / name, hub.users[0].name)
    lab.open(hub, hub.users[0], "review.ipynb")
    lab.run_all()
    canvas = lab.wait(lambda: lab.find(".jp-OutputArea canvas"))[0]
    lab.wait(lambda: "0 of 1,437 are dropped. 0 chosen." in lab.written())
    lab.find(".jp-OutputArea-output button")[1].click()  # the lasso, beside panning
    around = ActionChains(lab.driver).move_to_element_with_offset(canvas, -150, -150).click_and_hold()
    for x, y in 8 * [(25, 0)] + 8 * [(0, 25)] + 8 * [(-25, 0)]:
        around = around.move_by_offset(x, y)
    around.release().perform()
    chosen = int(lab.wait(lambda: re.search(r"([1-9][\d,]*) chosen", lab.written()))[1].replace(",", ""))
    lab.press("Drop")
    lab.wait(lambda: f"{chosen:,} of 1,437 are dropped" in lab.written())
    lab.press("Save")
    lab.wait(lambda: "Saved mine.nc" in lab.written())
    assert (~masks.load_keep(home / "mine.nc", digits)).sum() == chosen


@pytest.mark.browser
def test_no_process_of_a_user_takes_more_memory_than_the_hub_says(hub, lab):
    ids = subprocess.run(["pgrep", "-u", hub.users[0].name], capture_output=True, text=True, check=True).stdout.split()
    limits = [Path(f"/proc/{one}/limits").read_text() for one in ids]
    assert {re.search(r"Max data size\s+(\d+)", text)[1] for text in limits} == {str(6 << 30)}


@pytest.mark.browser
def test_another_users_server_is_refused(hub, lab):
    session, answer = log_in(hub, hub.users[1])
    assert answer.status_code == 302
    others = session.get(f"{hub.url}/user/{hub.users[0].name}/api/contents", timeout=60)
    assert others.status_code in (403, 404)
    assert "notebooks" not in others.text
