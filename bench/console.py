"""Prints what the console costs: its first paint, its lists, and the broker while it is open.

    python -m bench.console [--queues 10000]

A real Chromium opens the page of a broker with many queues. `first paint` is the browser's own
measure (first contentful paint), in a browser that has never been there, and `transferred` what
it got for it; `the overview` is how long it takes until its figures and charts are painted, for
somebody who is logged in and opens the page anew. A list is asked for as the page asks. Processor
time is the broker's, while one page is open on the overview and nobody else does anything, less
what it takes without the page.
"""

import argparse
import asyncio
import json
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from statistics import median
from typing import Any

import aio_pika

from bench.meter import tree_cpu_s
from entrepot.testing import Broker, broker

RUNS = 5
LISTS = (
    "queues",
    "queues?sort=ready&sort_reverse=true",
    "queues?name=9&page=7",
    "storage?sort=bytes&sort_reverse=true",
    "search?q=42",
)
_LOGIN = {"Authorization": "Basic " + b64encode(b"guest:guest").decode()}
_CHROMIUM = "/usr/bin/chromium"
_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
_BYTES = (
    "[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]"
    ".reduce((sum, each) => sum + each.transferSize, 0)"
)


async def fill(started: Broker, count: int) -> None:
    connection = await aio_pika.connect_robust(started.amqp_url)
    async with connection:
        channel = await connection.channel()
        for first in range(0, count, 100):
            names = range(first, min(first + 100, count))
            await asyncio.gather(
                *(channel.declare_queue(f"queue-{n:05}", durable=True) for n in names)
            )
        for number in range(0, count, 97):
            message = aio_pika.Message(b"x" * 100, delivery_mode=2)
            await channel.default_exchange.publish(message, f"queue-{number:05}")


def list_ms(started: Broker, path: str) -> float:
    """Return how long a list takes, as the middle of some tries."""
    times = []
    for _ in range(RUNS):
        connection = HTTPConnection(started.http_address)
        begun = time.perf_counter()
        connection.request("GET", f"/api/console/{path}", headers=_LOGIN)
        answer = connection.getresponse()
        body = answer.read()
        times.append((time.perf_counter() - begun) * 1_000)
        assert answer.status == 200, body
        connection.close()
    return median(times)


# Notes when the overview is there: at the next frame that is painted.
_NOTE_OVERVIEW = """
new MutationObserver((_, observer) => {
  if (!document.querySelector("main .tiles")) return;
  observer.disconnect();
  requestAnimationFrame(() => performance.mark("overview"));
}).observe(document, {childList: true, subtree: true});
"""
_OVERVIEW = "performance.getEntriesByName('overview')[0]?.startTime"


@contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=_CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield started
        started.close()


def open_overview(browser: Any, base: str) -> Any:
    """Log in, in a browser that was never there, and open the overview anew."""
    page = browser.new_context().new_page()
    page.goto(f"{base}/")
    page.get_by_label("Password").fill("guest")
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("heading", name="By protocol").wait_for()
    return page


def paints(browser: Any, base: str) -> tuple[list[float], list[float], list[int]]:
    """Return how long the first paint took, and the overview, and what was transferred."""
    times, shown, sizes = [], [], []
    for _ in range(RUNS):
        page = browser.new_context().new_page()
        page.goto(f"{base}/")
        page.get_by_role("button", name="Log in").wait_for()
        times.append(page.evaluate(_PAINT))
        page.get_by_label("Password").fill("guest")
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("heading", name="By protocol").wait_for()
        sizes.append(page.evaluate(_BYTES))
        again = page.context.new_page()
        again.add_init_script(_NOTE_OVERVIEW)
        again.goto(f"{base}/")
        again.wait_for_function(_OVERVIEW)
        shown.append(again.evaluate(_OVERVIEW))
        page.context.close()
    return times, shown, sizes


def cpu_share(started: Broker, seconds: float) -> float:
    begun, before_s = time.perf_counter(), tree_cpu_s(started.pid)
    time.sleep(seconds)
    return (tree_cpu_s(started.pid) - before_s) / (time.perf_counter() - begun)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=20.0)
    asked = parser.parse_args()
    with broker(settings={"ports.http": 0}) as started:
        asyncio.run(fill(started, asked.queues))
        base = f"http://{started.http_address}"
        time.sleep(2)
        idle = cpu_share(started, asked.seconds)
        print(f"{asked.queues} queues")
        for path in LISTS:
            print(f"  {path:<40} {list_ms(started, path):7.0f} ms")
        with chromium() as browser:
            times, shown, sizes = paints(browser, base)
            print(f"first paint   {median(times):5.0f} ms (best {min(times):.0f})")
            print(f"the overview  {median(shown):5.0f} ms (best {min(shown):.0f})")
            print(f"transferred   {median(sizes) / 1024:5.0f} KiB")
            page = open_overview(browser, base)
            time.sleep(3)
            watched = cpu_share(started, asked.seconds)
            page.close()
        print(f"broker, page open on the overview: {(watched - idle) * 100:.2f} % of a core")
        print(json.dumps({"idle": round(idle, 4), "watched": round(watched, 4)}))


if __name__ == "__main__":
    main()
