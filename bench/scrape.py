"""How long a scrape of the metrics takes, and how long it keeps others waiting.

    python -m bench.scrape [--topics 1000] [--scrapes 20]

Starts one entrepot with so many topics and as many queues, scrapes `/metrics`, and has a `Pinger`
ask for next to nothing meanwhile. The stall is the longest wait for the broker without what the
machine did, see `pinger`. On a busy machine both say more of the machine; so a page is also made
here, in the simulated world: the processor time of all its steps, and of the longest one. Others
are served between two steps.
"""

import statistics
import time

import click
import prometheus_client

from bench import wide
from bench.pinger import Pinger
from bench.stalls import staged
from entrepot.gateway.http.management.metrics import page_in_steps
from sim import loop
from tests.unit.gateway.http.management.house import House


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--topics", default=1_000, show_default=True, help="Topics, and queues.")
@click.option("--scrapes", default=20, show_default=True, help="How many.")
def main(topics: int, scrapes: int) -> None:
    """Measure scrapes of the metrics."""
    with staged(topics) as stage:
        stage.ask(wide.create_topics(stage.narrow))
        stage.declare(stage.queues, 0, stage.amqp)
        stage.http("GET", "/metrics")  # It imports the library.
        taken_ms, stalls_ms = [], []
        with Pinger(stage.broker.host, stage.broker.port, stage.broker.pid) as pinger:
            for _ in range(scrapes):
                pinger.waits()
                begun_s = time.perf_counter()
                text = stage.http("GET", "/metrics")
                taken_ms.append((time.perf_counter() - begun_s) * 1_000)
                stalls_ms.append(pinger.waits().stall_ms)
                time.sleep(0.1)
    page_ms, step_ms = loop.run(0, lambda sim: _of_processor(sim, topics))
    samples = sum(not line.startswith(b"#") for line in text.splitlines())
    print(f"{topics:,} topics, {topics:,} queues: {samples:,} samples, {len(text):,} bytes")
    for name, found in (("a scrape", taken_ms), ("stall", stalls_ms)):
        middle = statistics.median(found)
        print(f"{name:<34} {middle:>6.1f} ms  [{min(found):.1f}..{max(found):.1f}]")
    print(f"{'processor time of a page':<34} {page_ms:>6.1f} ms")
    print(f"{'processor time of its longest step':<34} {step_ms:>6.1f} ms")


async def _of_processor(sim: loop.SimLoop, topics: int) -> tuple[float, float]:
    """Return the medians of a few pages: all steps of one, and the longest."""
    house = House(sim, asks=False)
    await house.broker.open()
    for number in range(topics):
        await house.broker.create_topic(f"topic-{number}", 1)
        await house.declare(f"queue-{number}")
    pages, longest = [], []
    for _ in range(5):
        times, begun_s = [], time.process_time()
        for _ in page_in_steps(house.context, prometheus_client, None):
            times.append(time.process_time() - begun_s)
            begun_s = time.process_time()
        pages.append(1_000 * sum(times))
        longest.append(1_000 * max(times))
    return statistics.median(pages), statistics.median(longest)


if __name__ == "__main__":
    main()
