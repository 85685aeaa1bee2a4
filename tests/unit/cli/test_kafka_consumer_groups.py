"""What Kafka's tool takes, and the columns it prints."""

from datetime import timedelta

import click
import pytest

from entrepot.cli.group_offsets import Row
from entrepot.cli.kafka_consumer_groups import (
    member_rows,
    offset_rows,
    parse_datetime,
    parse_duration,
    print_table,
    state_row,
)
from entrepot.client.client import TopicPartition
from entrepot.client.cluster import Broker
from entrepot.client.groups import GroupInfo, GroupMember

PARTS = tuple(TopicPartition("t", index) for index in range(4))
FEW = GroupMember("few", None, "c1", "/10.0.0.1", PARTS[:1])
MANY = GroupMember("many", "static", "c2", "/10.0.0.2", PARTS[1:3], 5, PARTS[1:])
GROUP = GroupInfo("g", "Stable", "range", Broker(1, "h", 9092), (FEW, MANY), 6, 7)


def table(capsys: pytest.CaptureFixture[str], rows: list[dict[str, str]]) -> list[str]:
    print_table(rows)
    return capsys.readouterr().out.splitlines()


def test_offsets(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        Row(PARTS[0], 3, 10, FEW),
        Row(PARTS[1], None, 10, MANY),
        Row(PARTS[2], 10, 10, MANY),
        Row(PARTS[3], 4, None, None),
    ]
    assert table(capsys, offset_rows(GROUP, rows, is_verbose=False)) == [
        "",
        "GROUP           TOPIC           PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG"
        "             CONSUMER-ID     HOST            CLIENT-ID",
        "g               t               1          -               10              -"
        "               many            /10.0.0.2       c2",
        "g               t               2          10              10              0"
        "               many            /10.0.0.2       c2",
        "g               t               0          3               10              7"
        "               few             /10.0.0.1       c1",
        "g               t               3          4               -               -"
        "               -               -               -",
    ]
    (first, *_) = offset_rows(GROUP, rows, is_verbose=True)
    assert list(first)[3] == "LEADER-EPOCH"


def test_members(capsys: pytest.CaptureFixture[str]) -> None:
    head, _, many = (
        line.split() for line in table(capsys, member_rows(GROUP, is_verbose=True))[1:]
    )
    assert dict(zip(head, many, strict=True)) == {
        "GROUP": "g",
        "CONSUMER-ID": "many",
        "GROUP-INSTANCE-ID": "static",
        "HOST": "/10.0.0.2",
        "CLIENT-ID": "c2",
        "#PARTITIONS": "2",
        "CURRENT-EPOCH": "5",
        "CURRENT-ASSIGNMENT": "t:1,2",
        "TARGET-EPOCH": "7",
        "TARGET-ASSIGNMENT": "t:1,2,3",
    }


def test_state(capsys: pytest.CaptureFixture[str]) -> None:
    assert table(capsys, [state_row(GROUP, is_verbose=False)]) == [
        "",
        "GROUP           COORDINATOR (ID)          ASSIGNMENT-STRATEGY  STATE"
        "                #MEMBERS",
        "g               h:9092  (1)               range                Stable               2",
    ]


def test_nothing_is_no_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert table(capsys, []) == []


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("P1D", timedelta(days=1)),
        ("PT30M", timedelta(minutes=30)),
        ("P2DT3H4M5.5S", timedelta(days=2, hours=3, minutes=4, seconds=5.5)),
        ("pt0s", timedelta(0)),
    ],
)
def test_durations(text: str, duration: timedelta) -> None:
    assert parse_duration(text) == duration


@pytest.mark.parametrize("text", ["", "P", "PT", "1D", "P1H", "PT1D", "P1Y"])
def test_durations_that_are_none(text: str) -> None:
    with pytest.raises(click.UsageError, match="not like P1DT12H"):
        parse_duration(text)


def test_times_are_of_utc_unless_they_say_so() -> None:
    assert parse_datetime("1970-01-01T00:00:01.500") == 1_500
    assert parse_datetime("1970-01-01T01:00:01+01:00") == 1_000
    with pytest.raises(click.UsageError, match="not like"):
        parse_datetime("yesterday")
