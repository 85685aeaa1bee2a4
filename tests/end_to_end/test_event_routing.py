"""Events between real processes, over UDP on loopback, by every strategy; one process is killed."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from entrepot.cli import main
from entrepot.cluster.routing.strategies import STRATEGIES
from tests.end_to_end.datagram_nodes import Process, eventually

PERIOD_S = 0.25
# `scribe` knows topics and nothing more: its subscribers want more.
ALIKE = [name for name in STRATEGIES if name != "scribe"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def live(*arguments: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(main, ["routing", "live", "--json", *arguments])
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_six_processes_and_the_first_is_killed(strategy: str) -> None:
    """It is the root of the tree, the master, and a publisher; what the others publish at once
    after its death comes to all the others, each event once, by every strategy."""
    (row,) = live(strategy, "--nodes", "6", "--events", "40", "--kill", "0")
    assert row["as_expected"], row
    assert row["delivered"] == (28 if strategy == "scribe" else 21)


def test_every_strategy_delivers_the_same_and_what_each_costs() -> None:
    """The costs come from what the processes have sent."""
    some = ["flooding", "filtering", "hash", "ring", "gossip"]
    rows = {row["strategy"]: row for row in live(*some, "--nodes", "6", "--events", "40")}
    assert [*rows] == some
    assert all(row["as_expected"] for row in rows.values()), rows
    assert len({row["delivered"] for row in rows.values()}) == 1
    flooding, filtering = rows["flooding"], rows["filtering"]
    assert flooding["set_up"] == 0
    assert flooding["filters_max"] == 1  # Its own.
    assert flooding["messages"] > 5 * 40  # Each event to everybody, over all links.
    assert filtering["messages"] < flooding["messages"] / 3
    assert filtering["filters"] > flooding["filters"]
    assert rows["hash"]["hops"] <= 2


@pytest.fixture
def secret(tmp_path: Path) -> list[str]:
    path = tmp_path / "secret"
    path.write_text("what only these processes know\n")
    return ["--secret-file", str(path), "--period", str(PERIOD_S)]


def test_one_process_publishes_and_others_subscribe(secret: list[str]) -> None:
    with Process("routing", 0, *secret) as first:
        seed = ["--join", f"127.0.0.1:{first.port}", *secret]
        with (
            Process("routing", 1, *seed, "--subscribe", "{(price, <, 80)}") as cheap,
            Process("routing", 2, *seed) as bonds,
            Process("routing", 3, *seed[:2], "--period", str(PERIOD_S)) as stranger,
        ):
            nodes = [first, cheap, bonds]
            bonds.say('subscribe {(topic, =, "bonds")}')
            for node in nodes:
                eventually(lambda node=node: node.summary()["members"] == [0, 1, 2])
            # Who wants it is known where it is published.
            eventually(lambda: first.summary()["filters"] == 2)
            first.say("publish nonsense")
            first.say('publish {"topic": "bonds", "price": 100}')
            first.say('publish {"topic": "news", "price": 5}')
            assert bonds.wait("event")["event"] == {"topic": "bonds", "price": 100.0}
            assert cheap.wait("event")["event"] == {"topic": "news", "price": 5.0}
            bonds.say('unsubscribe {(topic, =, "bonds")}')
            bonds.say("subscribe {(price, >, 1000)}")
            eventually(lambda: first.summary()["filters"] >= 3)
            first.say('publish {"topic": "bonds", "price": 2000}')
            eventually(lambda: len(bonds.told("event")) == 2)
            assert bonds.told("event")[1]["event"]["price"] == 2000
            assert len(cheap.told("event")) == 1
            assert first.summary()["refused"]["forged"] > 0
            assert stranger.summary()["members"] == [3]


def test_what_cannot_be_asked_for(secret: list[str]) -> None:
    for arguments, said in (
        (["--subscribe", "(a, =, b)"], "b, at 7, is no number: a text is in quotes"),
        (["--strategy", "hash", "--subscribe", "(a, =, 1)"], "the filter names none"),
        (["--host", "0.0.0.0"], "--insecure lets them"),
        (["--join", "nowhere"], "not of the form HOST:PORT"),
    ):
        result = CliRunner().invoke(main, ["routing", "node", *arguments])
        assert result.exit_code == 1
        assert said in result.output
