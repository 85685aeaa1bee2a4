"""`entrepot top`: figures out of two scrapes, the keys, and what a screen shows."""

import io

import pytest
from rich.console import Console

from entrepot.cli.readings import Figures, Reading, figures
from entrepot.cli.top import keys_in
from entrepot.cli.top_view import LISTINGS, NAME_MAX, View, name_of, render, rows_of, snapshot

FIRST = """
entrepot_build_info{version="1.2.3"} 1
entrepot_connections{protocol="amqp"} 3
entrepot_messages_published_total{protocol="amqp"} 100
entrepot_confirm_latency_seconds_bucket{le="0.001",protocol="amqp"} 5
entrepot_confirm_latency_seconds_bucket{le="0.01",protocol="amqp"} 5
entrepot_confirm_latency_seconds_bucket{le="+Inf",protocol="amqp"} 5
entrepot_partition_log_start_offset{topic="t",partition="0"} 10
entrepot_partition_log_end_offset{topic="t",partition="0"} 50
entrepot_partition_log_start_offset{topic="t",partition="1"} 0
entrepot_partition_log_end_offset{topic="t",partition="1"} 50
entrepot_queue_messages_ready{vhost="/",queue="work"} 7
entrepot_queue_messages_accepted_total{vhost="/",queue="work"} 40
entrepot_queue_messages_consumed_total{vhost="/",queue="work"} 33
entrepot_queue_messages_dead_lettered_total{vhost="/",queue="work"} 0
entrepot_queue_messages_dropped_total{vhost="/",queue="work"} 0
entrepot_group_lag{group="g",topic="t",partition="0"} 5
entrepot_group_lag{group="g",topic="t",partition="1"} 6
entrepot_group_committed_offset{group="g",topic="t",partition="0"} 45
entrepot_alarm{kind="disk"} 1
entrepot_alarm{kind="memory"} 0
"""
SECOND = (
    FIRST.replace('published_total{protocol="amqp"} 100', 'published_total{protocol="amqp"} 300')
    .replace('partition="0"} 50', 'partition="0"} 70')
    .replace('partition="1"} 50', 'partition="1"} 60')
    .replace('queue="work"} 40', 'queue="work"} 60')
    .replace('queue="work"} 33', 'queue="work"} 3')  # It was deleted, and declared anew.
    .replace('le="0.001",protocol="amqp"} 5', 'le="0.001",protocol="amqp"} 15')
    .replace('le="0.01",protocol="amqp"} 5', 'le="0.01",protocol="amqp"} 25')
    .replace('le="+Inf",protocol="amqp"} 5', 'le="+Inf",protocol="amqp"} 25')
)


@pytest.fixture
def found() -> Figures:
    return figures(Reading(FIRST, 100.0), Reading(SECOND, 102.0))


def screen(
    figures: Figures, view: View, height: int = 40, problem: str = "", width: int = 200
) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(render(figures, view, height, 0.0, problem))
    return out.getvalue()


def test_rates(found: Figures) -> None:
    (amqp,) = found.protocols
    assert (amqp["in_s"], amqp["connections"], amqp["out_s"]) == (100, 3, None)
    (topic,) = found.topics
    assert (topic["in_s"], topic["records"], topic["partitions"]) == (15, 60 + 60, 2)
    (queue,) = found.queues
    assert (queue["ready"], queue["in_s"], queue["out_s"], queue["lost_s"]) == (7, 10, None, 0)
    (group,) = found.groups
    assert (group["lag"], group["partitions"]) == (11, 2)
    assert found.node["alarms"] == ["disk"]


def test_quantiles_are_of_the_time_between(found: Figures) -> None:
    """Ten were below a millisecond, and ten between one and ten."""
    (amqp,) = found.protocols
    assert amqp["answer_s"] == pytest.approx(0.001)
    assert amqp["answer_99_s"] == pytest.approx(0.001 + 0.009 * 0.98)


def test_one_look_has_no_rates() -> None:
    found = figures(None, Reading(FIRST, 100.0))
    assert found.protocols[0]["in_s"] is None
    assert found.queues[0]["in_s"] is None
    assert found.topics[0]["records"] == 90


def test_what_is_no_entrepot() -> None:
    with pytest.raises(ValueError, match="not the metrics"):
        Reading("up 1\n", 0.0)


def test_keys() -> None:
    assert keys_in(b"q") == ["q"]
    assert keys_in(b"\x1b[A\x1b[B\x1bOC\x1b[6~s\t") == [
        "up",
        "down",
        "right",
        "page down",
        "s",
        "\t",
    ]
    assert keys_in(b"\x1b[99;9~\x1b\xff") == ["\ufffd"]


def test_lists_are_chosen_and_sorted_by_keys() -> None:
    view = View()
    assert view.shown.name == "topics"
    assert view.pressed("\t", 10).shown.name == "queues"
    assert view.pressed("left", 10).shown.name == "groups"
    assert view.pressed("3", 10).shown.name == "groups"
    titles = []
    for _ in LISTINGS[0].sortable:
        view = view.pressed("s", 10)
        titles.append(view.column.key)
    assert titles == ["records", "bytes", "partitions", "in_s"]
    assert view.pressed("page down", 10).pressed("down", 10).pressed("up", 10).first == 10
    assert view.pressed("up", 10).first == 0
    assert view.pressed(" ", 10).is_paused
    assert view.pressed("z", 10) == view


def test_rows_with_most_come_first(found: Figures) -> None:
    rows = [{"topic": name, "in_s": rate} for name, rate in (("a", 1), ("b", None), ("c", 9))]
    assert [row["topic"] for row in rows_of(found._replace(topics=rows), View())] == ["c", "a", "b"]


def test_a_screen_is_as_high_as_the_terminal(found: Figures) -> None:
    topic = found.topics[0]
    many = found._replace(topics=[topic | {"topic": f"topic-{n}", "in_s": -n} for n in range(500)])
    for height in (24, 60):
        text = screen(many, View(), height)
        assert len(text.splitlines()) <= height
        assert "topic-0 " in text
        last = screen(many, View(first=10_000), height)
        assert "topic-499" in last
        assert len(last.splitlines()) <= height
    assert "ALARM disk" in screen(many, View())
    assert "no broker" in screen(many, View(), problem="no broker")


def test_names_do_nothing_to_a_terminal(found: Figures) -> None:
    hostile = "\x1b]0;owned\x07[red]\n" + "n" * 300
    queue = found.queues[0] | {"queue": hostile}
    for text in (
        screen(found._replace(queues=[queue]), View(1)),
        _printed(found._replace(queues=[queue])),
    ):
        assert "\x1b]" not in text
        assert "[red]" in text
    assert len(name_of(hostile)) <= NAME_MAX


def test_a_snapshot_says_how_much_it_leaves_out(found: Figures) -> None:
    queues = [found.queues[0]] * 80
    assert "and 30 more" in _printed(found._replace(queues=queues))


def _printed(figures: Figures) -> str:
    out = io.StringIO()
    Console(file=out, width=1_000).print(snapshot(figures, 0.0))
    return out.getvalue()


def test_a_long_name_leaves_room_for_numbers(found: Figures) -> None:
    queue = found.queues[0] | {"queue": "n" * 255}
    text = screen(found._replace(queues=[queue]), View(1), width=110)
    assert all(column.title in text for column in LISTINGS[1].columns), text
    assert "nnn…" in text
