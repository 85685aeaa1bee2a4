"""Writes metrics in Prometheus' text format, with prometheus-client, in steps.

The library writes names, types, labels and values. Of rows, which are many and have the same labels
in several metrics, it writes the labels of each once: all metrics take them from there, and so do
the next scrapes. That is what makes a page of a thousand queues a matter of milliseconds.

prometheus-client is imported for the first scrape, by a worker: it takes a tenth of a second. So
it is handed in here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from entrepot.core.measures import Histogram
from entrepot.core.steps import Steps, parts

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

PREFIX = "entrepot_"
SAMPLES_AT_ONCE = 250  # Written by the library in one step.
LINES_AT_ONCE = 2_000  # Written with labels that are known.

Labels = tuple[str, ...]
Samples = Sequence[tuple[Labels, float]]


class Family(NamedTuple):
    """One metric: its name without the prefix, what it means, and its samples by labels."""

    name: str
    text: str
    labels: Labels
    samples: Samples
    is_counter: bool = False


class Column(NamedTuple):
    """A metric that every row of a kind has."""

    name: str
    text: str
    is_counter: bool = False


class Rows(NamedTuple):
    """The values of partitions, queues or groups, by labels. A name need not be Unicode."""

    kind: str
    labels: Labels
    columns: Sequence[Column]
    found: Mapping[Labels, tuple[float, ...]]  # A value for each column.
    total: int  # How many there are, listed or not.


def write(library: Any, family: Family, page: bytearray) -> Steps[None]:
    """Append the text of a family, some samples in each step."""
    for start in range(0, max(1, len(family.samples)), SAMPLES_AT_ONCE):
        some = family.samples[start : start + SAMPLES_AT_ONCE]
        text = text_of(library, metric_of(library, family, some))
        if start:  # The lines of its name and type come once.
            text = b"".join([line + b"\n" for line in _samples_of(text)])
        page += text
        yield


class LabelTexts:
    """The labels of rows as they are written, kept from one scrape to the next.

    They follow from names, which do not change. Only those of the last scrape are kept.
    """

    def __init__(self) -> None:
        self._known: dict[str, dict[Labels, str]] = {}  # By kind.

    def update(self, library: Any, rows: Rows) -> Steps[Mapping[Labels, str]]:
        """Return the texts of all rows; have the library write those that are new."""
        known = self._known.get(rows.kind, {})
        fresh = [labels for labels in rows.found if labels not in known]
        written = bytearray()
        samples = [(tuple(map(label_of, labels)), 0.0) for labels in fresh]
        yield from write(library, Family("labels", "", rows.labels, samples), written)
        lines = _samples_of(written)
        texts = [line[line.index(b"{") : line.rindex(b" ")].decode() for line in lines]
        yield
        new = dict(zip(fresh, texts, strict=True))
        found = {labels: known.get(labels) or new[labels] for labels in rows.found}
        self._known[rows.kind] = found
        return found


def write_rows(library: Any, rows: Rows, texts: LabelTexts, page: bytearray) -> Steps[None]:
    """Append the texts of all metrics of the rows."""
    labels = yield from texts.update(library, rows)
    # Two names that are not Unicode may look alike; a text may be there only once.
    values = {labels[each]: row for each, row in rows.found.items()}
    yield
    for place, column in enumerate(rows.columns):
        family = Family(column.name, column.text, rows.labels, (), column.is_counter)
        page += text_of(library, metric_of(library, family, ()))
        name = PREFIX + family.name + ("_total" if family.is_counter else "")
        for some in parts(values.items(), LINES_AT_ONCE):
            page += "".join([f"{name}{each} {row[place]}\n" for each, row in some]).encode()
            yield


def _samples_of(text: bytes | bytearray) -> list[bytes | bytearray]:
    """Return the lines of samples. Only a line feed ends one: a name may have other line ends."""
    return [line for line in text.split(b"\n") if line and not line.startswith(b"#")]


def metric_of(library: Any, family: Family, samples: Samples) -> Metric:
    core = library.metrics_core
    kind = core.CounterMetricFamily if family.is_counter else core.GaugeMetricFamily
    metric: Metric = kind(PREFIX + family.name, family.text, labels=family.labels)
    for labels, value in samples:
        metric.add_metric(labels, value)  # type: ignore[attr-defined]
    return metric


def histogram_of(
    library: Any,
    name: str,
    text: str,
    histograms: Mapping[str, Histogram],
    label: str = "protocol",
) -> Metric:
    """Return a metric with a histogram for each value of the label; without one for ""."""
    labels = () if "" in histograms else (label,)
    found: Metric = library.metrics_core.HistogramMetricFamily(PREFIX + name, text, labels=labels)
    for value, histogram in histograms.items():
        buckets, count = [], 0
        for bound, more in zip((*histogram.bounds, "+Inf"), histogram.counts, strict=True):
            count += more
            buckets.append((str(bound), count))
        found.add_metric(  # type: ignore[attr-defined]
            (value,) if value else (), buckets, sum_value=histogram.total
        )
    return found


class _Only(NamedTuple):
    """A collector with one metric, as the library's writer takes it."""

    metric: Metric

    def collect(self) -> Iterable[Metric]:
        return [self.metric]


def text_of(library: Any, metric: Metric) -> bytes:
    text: bytes = library.generate_latest(_Only(metric))
    return text


def label_of(name: str) -> str:
    """Return a name as a label. Names of queues need not be Unicode."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
