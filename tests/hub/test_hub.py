"""What a user of the hub meets: a login that refuses others, JupyterLab with notebooks, charts without a network."""

import stat
from urllib.parse import urlsplit

import pytest
import requests
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait
from viewing import picture

PARAMETERS = """scale = "demo"
archs = ["smallnet-4"]
batch_sizes = [64, 256, 1024]
lrs = {rates}
seeds = None
epochs = 2
device = "cpu"
data_dir = store = time_limit = None"""
CHART = ".jp-RenderedVegaCommon5 svg"


def log_in(hub, account, password=None):
    """Return a session, and the answer to the login, which leads to the user's server if it is let in."""
    session = requests.Session()
    session.get(f"{hub.url}/hub/login", timeout=30)
    form = {"username": account.name, "password": password or account.password, "_xsrf": session.cookies["_xsrf"]}
    return session, session.post(f"{hub.url}/hub/login", data=form, timeout=60, allow_redirects=False)


def test_a_wrong_password_is_refused(hub):
    assert log_in(hub, hub.users[0], "wrong")[1].status_code == 403


def test_an_account_that_is_not_named_is_refused(hub):
    assert log_in(hub, hub.stranger)[1].status_code == 403


def test_secrets_are_for_the_hub_alone(hub):
    assert stat.S_IMODE(hub.state.stat().st_mode) == 0o700
    for name in ("cookie-secret", "jupyterhub.sqlite"):
        assert stat.S_IMODE((hub.state / name).stat().st_mode) == 0o600


class Lab:
    """JupyterLab with a notebook open, as a user meets it."""

    def __init__(self, browser):
        self.browser, self.driver = browser, browser.driver

    def find(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def wait(self, condition, seconds=60):
        # JupyterLab draws cells anew while a notebook opens and runs: what was found may be gone or not yet be there.
        waiting = WebDriverWait(self.driver, seconds, poll_frequency=0.2, ignored_exceptions=[WebDriverException])
        return waiting.until(lambda _: condition())

    def log_in(self, hub, account):
        self.driver.get(f"{hub.url}/hub/login")
        self.find("#username_input")[0].send_keys(account.name)
        self.find("#password_input")[0].send_keys(account.password, Keys.ENTER)
        self.wait(lambda: f"/user/{account.name}/lab" in self.driver.current_url, 90)

    def open(self, hub, account, notebook):
        self.driver.get(f"{hub.url}/user/{account.name}/lab/tree/{notebook}")
        self.wait(lambda: self.find(".jp-Notebook .jp-CodeCell .cm-content"), 60)
        self.wait(lambda: self.find("[data-status=idle]"))

    def set_parameters(self, text):
        self.driver.execute_script("document.querySelector('.jp-WindowedPanel-outer').scrollTo(0, 0)")
        self.wait(self.edits_first_code)
        ActionChains(self.driver).key_down(Keys.CONTROL).send_keys("a").key_up(Keys.CONTROL).perform()
        ActionChains(self.driver).send_keys(text).perform()
        self.wait(lambda: self.find(".jp-CodeCell .cm-content")[0].text == text)

    def edits_first_code(self):
        """Click into the first code cell, and tell whether the keys go there now."""
        found = self.find(".jp-CodeCell .cm-content")
        if found:
            found[0].click()
        focus = "return document.activeElement.matches('.cm-content') && document.activeElement"
        return found and self.driver.execute_script(focus) == self.find(".jp-CodeCell .cm-content")[0]

    def run_all(self):
        self.choose(".lm-MenuBar-itemLabel", "Run")
        self.choose(".lm-Menu-itemLabel", "Run All Cells")

    def choose(self, selector, text):
        (item,) = self.wait(lambda: [one for one in self.find(selector) if one.text == text])
        item.click()

    def written(self):
        return " ".join(one.text for one in self.find(".jp-OutputArea-output"))


@pytest.fixture(scope="module")
def lab(hub, browser):
    lab = Lab(browser)
    lab.log_in(hub, hub.users[0])
    lab.open(hub, hub.users[0], "dolb/notebooks/01-batch-size.ipynb")
    return lab


@pytest.mark.browser
@pytest.mark.slow
def test_a_user_runs_a_notebook_and_sees_its_chart_without_a_network(hub, lab):
    lab.set_parameters(PARAMETERS.format(rates="[0.1]"))
    lab.run_all()
    lab.wait(lambda: lab.find(CHART) and "What was run, and how to run it again" in lab.written(), 120)
    assert not lab.find("[data-mime-type='application/vnd.jupyter.error']")
    chart = lab.find(CHART)[0]
    lab.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", chart)
    pixels = picture(chart.screenshot_as_base64)
    coloured = (pixels.max(axis=2) - pixels.min(axis=2)) > 60
    assert coloured.sum() > 200  # a line and its points
    asked = [urlsplit(url) for url in lab.browser.requests()]
    assert {url.netloc for url in asked if url.scheme not in ("data", "blob", "about")} == {urlsplit(hub.url).netloc}


@pytest.mark.browser
@pytest.mark.slow
def test_another_rate_makes_only_the_runs_that_are_new(lab):
    lab.set_parameters(PARAMETERS.format(rates="[0.1, 0.5]"))
    lab.run_all()
    lab.wait(lambda: "3 of 6 runs are in" in lab.written(), 90)


def test_another_users_server_is_refused(hub, lab):
    session, answer = log_in(hub, hub.users[1])
    assert answer.status_code == 302
    others = session.get(f"{hub.url}/user/{hub.users[0].name}/api/contents", timeout=60)
    assert others.status_code in (403, 404)
    assert "notebooks" not in others.text
