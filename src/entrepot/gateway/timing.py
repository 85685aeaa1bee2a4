"""Times how long a run that is published takes until its answer, of a sample of them."""

from __future__ import annotations

from entrepot.broker.queue.message import Failure, Publication
from entrepot.core.measures import Latency
from entrepot.core.ports import Clock


def timed(outer: Publication, latency: Latency, clock: Clock) -> Publication:
    """Return a publication that `outer` waits for, and whose time is added to the histogram.

    A run that is not timed has none, so it costs nothing. The publisher calls `arrived` of both.
    """
    begun_s = latency.begin(clock.monotonic())
    outer.expect()

    def done(failure: Failure | None) -> None:
        latency.histogram.add(clock.monotonic() - begun_s)
        outer.arrived(failure)

    return Publication(done)
