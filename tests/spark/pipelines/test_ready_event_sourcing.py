"""Event sourcing: what may happen, what did, and that snapshots leave out nothing."""

import json
import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from entrepot.testing import broker
from examples.pipelines import event_sourcing
from examples.pipelines.event_sourcing import EVENT_OF, Account, evolve, refusal
from tests.spark.pipelines.ready import live, received, send

START = datetime(2026, 3, 1)
AMOUNT = "the amount must be from 1 to 1,000,000,000,000 cents"
OPEN = Account(version=4, is_open=True, cents=500)

Commands = list[tuple[Any, ...]]
COMMAND_COLUMNS = (
    "id string, account string, action string, cents bigint, seen bigint, at timestamp,"
    " _offset bigint"
)
EVENT_COLUMNS = (
    "account string, version bigint, event string, cents bigint, command string, at timestamp"
)


@pytest.mark.parametrize(
    ("account", "action", "cents", "seen", "reason"),
    [
        (Account(), "open", None, None, None),
        (Account(), "deposit", 1, None, "the account is not open"),
        (OPEN, "open", None, None, "the account is open already"),
        (OPEN, "deposit", 1, None, None),
        (OPEN, "deposit", 0, None, AMOUNT),
        (OPEN, "deposit", None, None, AMOUNT),
        (OPEN, "deposit", 10**12 + 1, None, AMOUNT),
        (OPEN, "withdraw", 500, None, None),
        (OPEN, "withdraw", 501, None, "there are only 500 cents"),
        (OPEN, "withdraw", -1, None, AMOUNT),
        (OPEN, "close", None, None, "there are 500 cents left"),
        (OPEN._replace(cents=0), "close", None, None, None),
        (OPEN, "deposit", 1, 4, None),
        (OPEN, "deposit", 1, 3, "the account is at version 4, not 3"),
        (OPEN, "rob", 1, None, "there is no action rob"),
    ],
)
def test_a_command_is_held_against_the_state(
    account: Account, action: str, cents: int | None, seen: int | None, reason: str | None
) -> None:
    assert refusal(account, action, cents, seen) == reason


def random_commands(seed: int, count: int) -> Commands:
    """Of a few accounts; many make no sense for the state they will meet."""
    chance = random.Random(seed)
    commands: Commands = []
    for number in range(count):
        action = chance.choice(["open", "deposit", "deposit", "withdraw", "close", "rob"])
        cents = chance.choice([None, -5, 0, 10, 20, 50]) if action != "open" else None
        seen = chance.choice([None, None, None, number // 10])
        account = chance.choice(["a", "b", "c", None])
        at = START + timedelta(hours=number)
        commands.append((f"c{number}", account, action, cents, seen, at, number))
    return commands


def decided(commands: Commands) -> tuple[list[dict[str, Any]], dict[str, Account]]:
    """The same by a plain loop: every decision in order, and the accounts at the end."""
    accounts: dict[str, Account] = {}
    told = []
    for id_, name, action, cents, seen, at, *_ in commands:
        account = accounts.get(name, Account())
        reason = refusal(account, action, cents, seen)
        reason = reason if name else "the command names no account"
        if reason is None:
            account = accounts[name] = evolve(account, EVENT_OF[action], cents)
        told.append({"command": id_, "account": name, "version": account.version})
        told[-1]["at"] = f"{at:%Y-%m-%dT%H:%M:%S.000Z}"
        told[-1] |= {"event": EVENT_OF[action]} if reason is None else {"reason": reason}
    return told, accounts


def by_name(rows: list[Any]) -> dict[str, Account]:
    return {row.account: Account(row.version, row.is_open, row.cents) for row in rows}


def test_commands_become_events_or_rejections(spark: Any) -> None:
    commands = random_commands(1, 300)
    shuffled = random.Random(2).sample(commands, len(commands))
    rows = event_sourcing.decide(spark.createDataFrame(shuffled, COMMAND_COLUMNS)).collect()
    expected, accounts = decided(commands)
    found = {json.loads(row.value)["command"]: row for row in rows}
    assert len(rows) == len(found) == len(expected)
    for one in expected:
        row = found[one["command"]]
        assert row.topic == ("account-events" if "event" in one else "account-rejections")
        assert row.key == one["account"]
        one = {name: value for name, value in one.items() if value is not None}
        assert one.items() <= json.loads(row.value).items()
    assert {row.topic for row in rows} == {"account-events", "account-rejections"}
    assert all(account.cents >= 0 for account in accounts.values())


def events_of(commands: Commands) -> list[tuple[Any, ...]]:
    told, _ = decided(commands)
    return [
        (one["account"], one["version"], one["event"], command[3], one["command"], command[5])
        for one, command in zip(told, commands, strict=True)
        if "event" in one
    ]


def test_the_views_are_folded_out_of_the_events(spark: Any) -> None:
    commands = random_commands(3, 300)
    history = events_of(commands)
    events = spark.createDataFrame(history, EVENT_COLUMNS)
    assert by_name(event_sourcing.balances(events).collect()) == decided(commands)[1]
    expected: dict[Any, list[int]] = {}
    for _, _, event, cents, _, at in history:
        if event in ("deposited", "withdrawn"):
            day = expected.setdefault(at.date(), [0, 0, 0])
            day[event == "withdrawn"] += cents
            day[2] += 1
    turnover = event_sourcing.turnover(events).na.fill(0).collect()
    assert {row.day: [row.deposited, row.withdrawn, row.movements] for row in turnover} == expected


def test_a_snapshot_and_what_came_later_equal_the_full_replay(spark: Any) -> None:
    """Also when the events that snapshots cover are no longer there."""
    commands = random_commands(4, 400)
    history = events_of(commands)
    events = spark.createDataFrame(history, EVENT_COLUMNS)
    made = event_sourcing.snapshots_every(events, 7).collect()
    assert made, "nothing was long enough for a snapshot"
    columns = "account string, version bigint, is_open boolean, cents bigint"
    snapshots = spark.createDataFrame(made, columns)
    covered = {row.account: row.version for row in made}
    kept = [event for event in history if event[1] > covered.get(event[0], 0)]
    assert 0 < len(kept) < len(history)
    replayed = by_name(event_sourcing.balances(events).collect())
    for rest in (history, kept):
        later = spark.createDataFrame(rest, EVENT_COLUMNS)
        assert by_name(event_sourcing.restored(snapshots, later).collect()) == replayed
    without = event_sourcing.restored(
        snapshots.limit(0), spark.createDataFrame(kept, EVENT_COLUMNS)
    )
    assert by_name(without.collect()) != replayed, "the snapshots were not needed"


# --- live


def told(commands: Commands) -> list[dict[str, Any]]:
    names = ("id", "account", "action", "cents", "seen", "at")
    return [dict(zip(names, command, strict=False)) for command in commands]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_live_the_log_holds_what_was_decided_and_the_view_follows(
    spark: Any, tmp_path: Path
) -> None:
    """In two batches, so that the second is held against a state that was kept."""
    commands = random_commands(5, 120)
    expected, accounts = decided(commands)
    with broker() as server:
        send(server, "account-commands", told(commands[:70]), "account")
        with live(spark, event_sourcing, tmp_path, server, "decide", "balances") as running:
            send(server, "account-commands", told(commands[70:]), "account")
            running.drain()
            assert by_name(running.view("balances")) == accounts
        found = received(server, "account-events") + received(server, "account-rejections")
        assert sorted(each["command"] for each in found) == sorted(c[0] for c in commands)
        answers = {each["command"]: each for each in found}
        for one in expected:
            one = {name: value for name, value in one.items() if value is not None}
            assert one.items() <= answers[one["command"]].items()
        running.runner.replay("balances")
        assert by_name(running.view("balances")) == accounts


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_live_the_state_is_restored_from_snapshots(spark: Any, tmp_path: Path) -> None:
    movements = [("deposit", 3), ("withdraw", 1)] * 130
    commands = [("open", None), *movements]
    rows = [
        (f"c{n}", "a", action, cents, None, START, n) for n, (action, cents) in enumerate(commands)
    ]
    with broker() as server:
        send(server, "account-commands", told(rows[:120]), "account")
        names = ("decide", "balances", "snapshots", "restored")
        with live(spark, event_sourcing, tmp_path, server, *names) as running:
            for first in (120, 220):
                send(server, "account-commands", told(rows[first : first + 100]), "account")
                running.drain()
            assert by_name(running.view("restored")) == by_name(running.view("balances"))
            assert running.view("balances")[0].version == len(rows)
        snapshots = received(server, "account-snapshots")
        assert [each["version"] for each in snapshots] == [100, 200]
