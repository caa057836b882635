"""A Chromium without a network, and what its pages ask for."""

import json
import shutil
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.wait import WebDriverWait

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
# The resolver rule and the flags that keep the browser itself quiet leave only the page's own requests to be seen.
FLAGS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1300,1000",
    "--enable-unsafe-swiftshader",  # WebGL without a graphics card
]  # fmt: skip


class Browser:
    """Chromium, and what a page opened in it asked for and complained about."""

    def __init__(self, profile: str, *, loopback: bool = False) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM or ""
        hosts = f"--host-resolver-rules=MAP * ~NOTFOUND{' , EXCLUDE 127.0.0.1' if loopback else ''}"
        for flag in [*FLAGS, hosts, f"--user-data-dir={profile}"]:
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(DRIVER))
        offline = {"offline": not loopback, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        self.driver.execute_cdp_cmd("Network.enable", {})
        self.driver.execute_cdp_cmd("Network.emulateNetworkConditions", offline)

    def open(self, page: Path, query: str = "") -> None:
        self.driver.get("about:blank")
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        self.driver.get(page.resolve().as_uri() + query)
        # On a busy machine ``get`` now and then returns before the page is there.
        loaded = "return location.href !== 'about:blank' && document.readyState === 'complete'"
        WebDriverWait(self.driver, 30).until(lambda driver: driver.execute_script(loaded))

    def resize(self, width: int, height: int) -> None:
        """Make the page this wide and high; a window cannot be as narrow as a telephone."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def requests(self) -> list[str]:
        """Return every address asked for since the last call."""
        messages: list[dict[str, Any]] = [
            json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")
        ]
        return [
            message["params"]["request"]["url"]
            for message in messages
            if message["method"] == "Network.requestWillBeSent"
        ]

    def errors(self) -> list[str]:
        """Return the console's errors since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]
