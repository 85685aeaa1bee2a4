"""How long a scrape of the metrics takes, and how long it keeps others waiting.

    python -m bench.scrape [--topics 1000] [--scrapes 20]

Starts one entrepot with so many topics and as many queues, scrapes `/metrics`, and has a `Pinger`
ask for next to nothing meanwhile. The stall is the longest wait for the broker without what the
machine did, see `pinger`.
"""

import statistics
import time

import click

from bench import wide
from bench.pinger import Pinger
from bench.stalls import staged


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
    samples = sum(not line.startswith(b"#") for line in text.splitlines())
    print(f"{topics:,} topics, {topics:,} queues: {samples:,} samples, {len(text):,} bytes")
    for name, found in (("a scrape", taken_ms), ("stall", stalls_ms)):
        middle = statistics.median(found)
        print(f"{name:<10} {middle:>6.1f} ms  [{min(found):.1f}..{max(found):.1f}]")


if __name__ == "__main__":
    main()
