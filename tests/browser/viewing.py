"""What tests of the viewer share: points as many as CIFAR-10 has, and the viewer as a reader meets it."""

import base64
import re
from io import BytesIO

import numpy as np
import xarray as xr
from PIL import Image
from selenium.webdriver.common.actions.action_builder import ActionBuilder
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from dolb.filtering import noise

EPS, POINTS = 1.2, 50_000
LOCAL = ("file:", "data:", "blob:", "about:")


def made_points():
    """Return a disc of points per class, strays, their noise radii, and the mask of one eps."""
    rng = np.random.default_rng(0)
    label = np.arange(POINTS) % 10
    angle, radius, place = rng.random(POINTS) * 2 * np.pi, 12 * np.sqrt(rng.random(POINTS)), label * np.pi / 5
    x, y = 32 * np.cos(place) + radius * np.cos(angle), 32 * np.sin(place) + radius * np.sin(angle)
    stray = rng.random(POINTS) < 0.07
    x[stray], y[stray] = rng.uniform(-44, 44, (2, stray.sum()))
    until = noise.noise_until(np.stack([x, y], axis=1), label)
    arrays = {"x": x, "y": y, "label": label, "keep": until <= EPS, "noise_until": until}
    return xr.Dataset({name: ("example", values) for name, values in arrays.items()})


class Figure:
    """The viewer on the page that is open, as a reader meets it."""

    def __init__(self, browser):
        self.browser, self.driver = browser, browser.driver
        self.wait(lambda: self.script("return !!figure?.viewer"))
        self.wait(lambda: self.find(".dv-tiles canvas"))

    def script(self, code, *arguments):
        return self.driver.execute_script(f"const figure = document.querySelector('.dolb-viewer'); {code}", *arguments)

    def find(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, f".dolb-viewer {selector}")

    def wait(self, condition, seconds=60):
        WebDriverWait(self.driver, seconds, poll_frequency=0.1).until(lambda _: condition())

    def slide_to(self, step):
        """Move the slider with the keyboard: to its nearer end, then one key for each step."""
        slider = self.find("[name=step]")[0]
        back = int(slider.get_attribute("max")) - step
        keys = [Keys.HOME, *[Keys.ARROW_RIGHT] * step] if step < back else [Keys.END, *[Keys.ARROW_LEFT] * back]
        slider.send_keys(*keys)

    def choose(self, name):
        Select(self.find("[name=class]")[0]).select_by_visible_text(name)

    def shares(self):
        """Return what the sentence says: (removed, of how many) of all, and of a chosen class."""
        text = self.find(".dv-share")[0].text.replace(",", "")
        return [(int(a), int(b)) for a, b in re.findall(r"(\d+) of (\d+) \(", text)]

    def eps(self):
        return float(self.find("[name=eps]")[0].text)

    def point_at(self, example):
        """Put the mouse on an example's point."""
        self.script("figure.querySelector('.dv-map').scrollIntoView({block: 'center', behavior: 'instant'})")
        left, top = self.script(
            "const box = figure.querySelector('.dv-map > canvas').getBoundingClientRect();"
            "const [x, y] = figure.viewer.map.at(arguments[0]); return [box.left + x, box.top + y]",
            example,
        )
        for offset in (40, 1, 0):  # arrive from elsewhere: a mouse moves
            actions = ActionBuilder(self.driver, duration=0)
            actions.pointer_action.move_to_location(round(left) + offset, round(top))
            actions.perform()

    def pixels(self):
        """Return the map as drawn, (H, W, 3)."""
        self.script("figure.querySelector('.dv-map').scrollIntoView({block: 'center', behavior: 'instant'})")
        return picture(self.find(".dv-map > canvas")[0].screenshot_as_base64)


def picture(text):
    return np.asarray(Image.open(BytesIO(base64.b64decode(text))).convert("RGB")).astype(int)


def tiles(figure):
    return [int(tile.get_attribute("data-example")) for tile in figure.find(".dv-tiles button")]
