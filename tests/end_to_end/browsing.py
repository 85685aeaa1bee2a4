"""A browser without a window, that uses the console as a person does: by what is written there.

The browser is the system's Chromium; Playwright drives it, and waits until what is to be pressed
is there and can be.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import ConsoleMessage, Error, Locator, Page, sync_playwright

WAIT_S = 15
CHROMIUM = shutil.which("chromium")
NEEDS_CHROMIUM = pytest.mark.skipif(
    CHROMIUM is None, reason="Chromium is not installed (Debian: apt-get install chromium)"
)
_FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
WIDTH, HEIGHT = 1280, 900


class Browser:
    """A page with one console. A text finds the button, link or field that has it."""

    def __init__(self, page: Page, base: str) -> None:
        self.base = base
        self.page = page
        self.page.set_default_timeout(WAIT_S * 1_000)
        self._problems: list[str] = []
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self._problems.append(str(error)))

    def _said(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self._problems.append(f"{message.text} {message.location.get('url')}")

    def open(self, address: str = "") -> None:
        self.page.goto(f"{self.base}/#/{address}")

    def log_in(self, user: str, password: str) -> None:
        self.wait_for("Log in to entrepot")
        self.write("User", user)
        self.write("Password", password)
        self.press("Log in")
        self.page.locator("dialog").wait_for(state="detached")

    def resize(self, width: int = WIDTH, height: int = HEIGHT) -> None:
        self.page.set_viewport_size({"width": width, "height": height})

    # --- seeing

    @property
    def text(self) -> str:
        return self.page.locator("body").inner_text()

    def wait_for(self, *texts: str) -> None:
        """Wait until all of these are on the page together."""
        script = "texts => texts.every((text) => document.body.innerText.includes(text))"
        try:
            self.page.wait_for_function(script, arg=list(texts), polling=50)
        except Error:
            raise AssertionError(f"{texts} in:\n{self.text}\n{self.problems()}") from None

    def until(self, script: str) -> None:
        self.page.wait_for_function(script, polling=50)

    def has_button(self, text: str) -> bool:
        return self.page.get_by_role("button", name=text, exact=True).count() > 0

    def rows(self) -> list[str]:
        """Return the texts of the rows of all tables, the cells separated by ` | `."""
        found: list[str] = self.run(
            "[...document.querySelectorAll('main tbody tr')].map("
            "(row) => [...row.cells].map((cell) => cell.innerText.trim()).join(' | '))"
        )
        return found

    def run(self, script: str) -> Any:
        return self.page.evaluate(script)

    def problems(self) -> list[str]:
        """Return the errors on the browser's console since the last call."""
        found, self._problems = self._problems, []
        return found

    # --- doing

    def press(self, text: str) -> None:
        place = self._place()
        button = place.get_by_role("button", name=text, exact=True)
        found = button.or_(place.get_by_role("link", name=text, exact=True)).first
        self._try(found.click, f"press {text!r}")

    def write(self, label: str, text: str) -> None:
        field = self._place().locator("label").filter(has_text=label).first
        element = field.locator("input, textarea, select")
        self._try(lambda: element.fill(text), f"write into {label!r}")

    def _try(self, work: Callable[[], object], what: str) -> None:
        try:
            work()
        except Error as error:
            raise AssertionError(f"cannot {what}: {error}\nin:\n{self.text}") from None

    def _place(self) -> Locator:
        """Return where things are looked for: in the dialog, if one is open."""
        return self.page.locator("dialog[open], body:not(:has(dialog[open]))")

    def search(self, text: str) -> None:
        """Search all names, and go to the first that is found."""
        self.run("document.activeElement.blur()")
        self.page.keyboard.press("/")
        self.page.keyboard.type(text)
        self.page.locator("[role=option][aria-selected=true]").wait_for()
        self.page.keyboard.press("Enter")


@contextmanager
def chromium() -> Iterator[Callable[..., Browser]]:
    """Start a browser. Yields what opens a console in it, each as one who has never been there;
    with Playwright's options of a context."""
    assert CHROMIUM is not None
    with sync_playwright() as playwright:  # It makes a profile of its own, and removes it.
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=list(_FLAGS))

        def visit(base: str, **options: Any) -> Browser:
            context = started.new_context(viewport={"width": WIDTH, "height": HEIGHT}, **options)
            return Browser(context.new_page(), base)

        try:
            yield visit
        finally:
            started.close()
