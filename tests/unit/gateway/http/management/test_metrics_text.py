"""The text of metrics: what the library would write, in steps, however many rows there are."""

from collections.abc import Iterator

import prometheus_client
import pytest
from prometheus_client.parser import text_string_to_metric_families

from entrepot.core.measures import Histogram
from entrepot.core.steps import finish
from entrepot.gateway.http.management import metrics_text
from entrepot.gateway.http.management.metrics_rows import rows_of
from entrepot.gateway.http.management.metrics_text import Column, Family, Labels, LabelTexts, Rows
from tests.unit.gateway.http.management.test_metrics import read

COLUMNS = (Column("ready", "Ready."), Column("came", "Came.", True), Column("size", "Size."))


def test_a_name_that_is_not_unicode() -> None:
    page = bytearray()
    label = metrics_text.label_of('\udcff"\n')
    family = Family("rows", "Rows.", ("queue",), [((label,), 1.0)])
    finish(metrics_text.write(prometheus_client, family, page))
    assert read(page.decode()) == {("entrepot_rows", '\\xff"\n'): 1}


AT_ONCE = metrics_text.SAMPLES_AT_ONCE


@pytest.mark.parametrize("count", [0, 1, AT_ONCE, 3 * AT_ONCE + 1])
def test_a_long_family_is_written_in_steps(count: int) -> None:
    samples = [((str(number),), float(number)) for number in range(count)]
    family = Family("rows", "Rows.", ("number",), samples)
    page = bytearray()
    steps = sum(1 for _ in metrics_text.write(prometheus_client, family, page))
    assert steps == max(1, -(-count // AT_ONCE))
    at_once = metrics_text.metric_of(prometheus_client, family, samples)
    assert bytes(page) == metrics_text.text_of(prometheus_client, at_once)


@pytest.mark.parametrize("count", [0, 1, AT_ONCE + 1, metrics_text.LINES_AT_ONCE + 1])
def test_rows_are_written_as_the_library_writes_them(count: int) -> None:
    names = ['{a="b"} 1', "\\", "\n", "# x", " ", "", "}", "\u2028\x85\r", "<script>", "é" * 200]
    names += [f"queue {number}" for number in range(count)]
    found: dict[Labels, tuple[float, ...]] = {
        ("/", name): (number, 2**52 + number, number * 1_000_000_000)
        for number, name in enumerate(names[:count])
    }
    rows, texts = Rows("queue", ("vhost", "queue"), COLUMNS, found, len(found)), LabelTexts()
    for _ in range(2):  # The second time labels are known.
        page = bytearray()
        finish(metrics_text.write_rows(prometheus_client, rows, texts, page))
    expected = b"".join(
        metrics_text.text_of(
            prometheus_client,
            metrics_text.metric_of(
                prometheus_client,
                Family(each.name, each.text, rows.labels, (), each.is_counter),
                [(labels, values[place]) for labels, values in found.items()],
            ),
        )
        for place, each in enumerate(COLUMNS)
    )
    assert read(page.decode()) == read(expected.decode())
    assert len(read(page.decode())) == 3 * len(found)


def test_labels_are_kept_as_long_as_there_are_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    texts, asked = LabelTexts(), []

    def update(*names: str) -> list[str]:
        rows = Rows("queue", ("queue",), COLUMNS, {(name,): (1, 2, 3) for name in names}, 9)
        return list(finish(texts.update(prometheus_client, rows)).values())

    def label_of(name: str) -> str:
        asked.append(name)
        return name

    monkeypatch.setattr(metrics_text, "label_of", label_of)
    assert update("a", "b") == ['{queue="a"}', '{queue="b"}']
    assert update("b", "c", "a") == ['{queue="b"}', '{queue="c"}', '{queue="a"}']
    assert asked == ["a", "b", "c"]
    assert update("a") == ['{queue="a"}']
    update("a", "b")
    assert asked == ["a", "b", "c", "b"]


def test_two_names_that_look_alike_are_there_once() -> None:
    found: dict[Labels, tuple[float, ...]] = {("\udcff",): (1, 1, 1), ("\\xff",): (2, 2, 2)}
    page = bytearray()
    rows = Rows("queue", ("queue",), COLUMNS, found, 2)
    finish(metrics_text.write_rows(prometheus_client, rows, LabelTexts(), page))
    assert page.count(b"entrepot_ready{") == 1


def test_the_histogram() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        histogram.add(value)
    metric = metrics_text.histogram_of(prometheus_client, "x_seconds", "X.", {"": histogram})
    text = metrics_text.text_of(prometheus_client, metric)
    (family,) = text_string_to_metric_families(text.decode())
    buckets = {sample.labels["le"]: sample.value for sample in family.samples if sample.labels}
    assert buckets == {"1.0": 2, "2.0": 3, "+Inf": 4}
    assert {sample.value for sample in family.samples if not sample.labels} == {4, 12.0}


def test_nothing_is_looked_at_beyond_the_limit() -> None:
    looked = []

    def looks() -> Iterator[object]:
        for number in range(10):
            yield lambda number=number: (looked.append(number), ((str(number),), (1.0,)))[1]

    columns = [Column("a", "A.")]
    rows = finish(rows_of("row", ("number",), columns, looks(), 4))  # type: ignore[arg-type]
    assert (looked, rows.total, len(rows.found)) == ([0, 1, 2, 3], 10, 4)
