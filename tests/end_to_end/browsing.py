"""A browser without a window, that uses the console as a person does: by what is written there."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException, WebDriverException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

WAIT_S = 10
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
NEEDS_CHROMIUM = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None,
    reason="Chromium and its driver are not installed (apt-get install chromium chromium-driver)",
)
_FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--force-device-scale-factor=1",
)


class Browser:
    """A browser on one console. A text finds the button, link or field that has it."""

    def __init__(self, driver: webdriver.Chrome, base: str) -> None:
        self.driver = driver
        self.base = base

    def open(self, address: str = "") -> None:
        self.driver.get(f"{self.base}/#/{address}")

    def log_in(self, user: str, password: str) -> None:
        self.wait_for("Log in to entrepot")
        self.write("User", user)
        self.write("Password", password)
        self.press("Log in")
        self.until(lambda: not self._dialogs())

    # --- seeing

    @property
    def text(self) -> str:
        found: str = self.driver.execute_script("return document.body.innerText")
        return found

    def wait_for(self, *texts: str) -> None:
        try:
            self.until(lambda: all(text in self.text for text in texts))
        except Exception:
            raise AssertionError(f"{texts} in:\n{self.text}\n{self.problems()}") from None

    def until(self, is_so: Any) -> None:
        ignored = (StaleElementReferenceException, WebDriverException)
        wait = WebDriverWait(self.driver, WAIT_S, 0.05, ignored)
        wait.until(lambda _: is_so())

    def has_button(self, text: str) -> bool:
        return bool(self._visible(f"//button[normalize-space()={_quoted(text)}]"))

    def rows(self, css: str = "main tbody tr") -> list[str]:
        """Return the texts of rows, the cells separated by ` | `."""
        script = (
            "return [...document.querySelectorAll(arguments[0])].map("
            "(row) => [...row.cells].map((cell) => cell.innerText.trim()).join(' | '))"
        )
        found: list[str] = self.driver.execute_script(script, css)
        return found

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def problems(self) -> list[str]:
        """Return the errors that the browser's console has got since the last call."""
        return [each["message"] for each in self.driver.get_log("browser")]

    # --- doing

    def press(self, text: str) -> None:
        self._click(*(f"//{tag}[normalize-space()={_quoted(text)}]" for tag in ("button", "a")))

    def write(self, label: str, text: str) -> None:
        path = f"//label[starts-with(normalize-space(), {_quoted(label)})]"
        self.until(lambda: self._visible(self._place() + path))
        field = self._visible(self._place() + path)[0]
        element = field.find_element(By.CSS_SELECTOR, "input, textarea, select")
        if element.tag_name == "select":
            element.send_keys(text)
        else:
            element.clear()
            element.send_keys(text)

    def key(self, text: str) -> None:
        self.driver.switch_to.active_element.send_keys(text)

    def search(self, text: str) -> None:
        """Search all names, and go to the first that is found."""
        self.run("document.activeElement.blur()")
        self.driver.find_element(By.TAG_NAME, "body").send_keys("/")
        self.key(text)
        self.until(lambda: self._visible("//*[@role='option'][@aria-selected='true']"))
        self.key(Keys.ENTER)

    # --- finding

    def _dialogs(self) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, "dialog[open]")

    def _place(self) -> str:
        """Return where things are looked for: in the dialog, if one is open."""
        return "//dialog[@open]" if self._dialogs() else ""

    def _visible(self, path: str) -> list[WebElement]:
        return [each for each in self.driver.find_elements(By.XPATH, path) if each.is_displayed()]

    def _click(self, *paths: str) -> None:
        def is_clicked() -> bool:
            place = self._place()
            for each in self._visible(" | ".join(place + path for path in paths)):
                if each.is_enabled():
                    self.run("arguments[0].scrollIntoView({block: 'center'})", each)
                    each.click()
                    return True
            return False

        try:
            self.until(is_clicked)
        except Exception:
            raise AssertionError(f"nothing to press at {paths} in:\n{self.text}") from None


def _quoted(text: str) -> str:
    """Return a text for XPath, which knows no escapes."""
    return f"'{text}'" if "'" not in text else f'"{text}"'


@contextmanager
def browser(base: str, width: int = 1280, height: int = 900) -> Iterator[Browser]:
    """Start a browser that has never been anywhere."""
    assert CHROMIUM is not None
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    options.set_capability("goog:loggingPrefs", {"browser": "SEVERE", "performance": "OFF"})
    with tempfile.TemporaryDirectory(prefix="entrepot-browser-") as profile:
        for flag in (*_FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"):
            options.add_argument(flag)
        driver = webdriver.Chrome(options, Service(DRIVER))
        try:
            yield Browser(driver, base)
        finally:
            driver.quit()
