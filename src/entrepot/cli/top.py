"""`entrepot top`: what happens in a broker now, in the terminal.

It reads the broker's metrics again and again, and shows the rates in between. Into a pipe it
writes one snapshot, of a second.
"""

from __future__ import annotations

import os
import re
import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import click

from entrepot.cli.management import Api, Unreachable, connect, management_options
from entrepot.cli.readings import Figures, Reading, figures
from entrepot.cli.talk import json_option, show_json

SNAPSHOT_S = 1.0
_ESCAPED = {
    "A": "up",
    "B": "down",
    "C": "right",
    "D": "left",
    "5~": "page up",
    "6~": "page down",
}
_KEY = re.compile(r"\x1b[\[O]([0-9;]*[A-Za-z~])|([^\x1b])")


@click.command()
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(0.2, 3_600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Between two looks.",
)
@click.option("--once", is_flag=True, help="One snapshot, as into a pipe.")
@json_option
@management_options
def top(interval_s: float, once: bool, as_json: bool) -> None:
    """Show what happens in a broker now: rates, connections, backlogs, lag.

    Keys: tab for topics, queues or groups, s to sort by the next column, arrows to scroll,
    space to stop, q to quit. Into a pipe it writes one snapshot.
    """
    api = connect()
    if once or as_json or not (sys.stdout.isatty() and sys.stdin.isatty()):
        _show_once(api, as_json)
        return
    with _keys():
        _watch(api, interval_s)


def _read(api: Api) -> Reading:
    """Raises Refused, Unreachable."""
    text = api.metrics()
    try:
        return Reading(text, time.monotonic())
    except ValueError as error:
        raise Unreachable(str(error)) from None


def _show_once(api: Api, as_json: bool) -> None:
    before = _read(api)
    time.sleep(SNAPSHOT_S)
    found = figures(before, _read(api))
    if as_json:
        show_json([found._asdict()])
        return
    from rich.console import Console

    from entrepot.cli.top_view import snapshot

    width = None if sys.stdout.isatty() else 1_000
    Console(highlight=False, width=width).print(snapshot(found, time.time()))


def _watch(api: Api, interval_s: float) -> None:
    """Look again and again, until `q` or Ctrl-C. A broker that is away is waited for."""
    from rich.console import Console
    from rich.live import Live

    from entrepot.cli.top_view import View, page_of, render

    before, now, problem = None, _read(api), ""
    found: Figures = figures(before, now)
    view = View()
    console = Console(highlight=False)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        due_s = time.monotonic() + min(interval_s, SNAPSHOT_S)  # The first rates come soon.
        while True:
            screen = render(found, view, console.height, time.time(), problem)
            live.update(screen, refresh=True)
            for key in _keys_pressed(max(0.0, due_s - time.monotonic())):
                if key in ("q", "Q", "\x03"):
                    return
                view = view.pressed(key, page_of(found, console.height))
            if time.monotonic() < due_s:
                continue
            due_s = time.monotonic() + interval_s
            if view.is_paused:
                continue
            try:
                before, now, problem = now, _read(api), ""
                found = figures(before, now)
            except click.ClickException as error:
                problem = error.format_message()


@contextmanager
def _keys() -> Iterator[None]:
    """Let keys be read one by one, and not shown."""
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _keys_pressed(seconds: float) -> list[str]:
    """Wait for keys, at most so long."""
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    if not ready:
        return []
    said = os.read(sys.stdin.fileno(), 1_024)
    return keys_in(said) if said else ["q"]  # Without anything the terminal is gone.


def keys_in(said: bytes) -> list[str]:
    """Return the keys in what a terminal sent; those without a character by their names."""
    found = _KEY.findall(said.decode("utf-8", "replace"))
    keys = [_ESCAPED.get(escaped, "") if escaped else plain for escaped, plain in found]
    return [key for key in keys if key]
