"""One workload by every strategy: the same deliveries, and what each costs."""

import json

import pytest
from click.testing import CliRunner

from entrepot.cli import main
from entrepot.lab.routing import STRATEGIES, dealing_room, run, strategies

COUNT = 30


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("chance", [1, 2])
def test_every_strategy_delivers_the_same_each_once(strategy: str, chance: int) -> None:
    load = dealing_room(COUNT, 40, chance)
    expected = load.expected()
    assert sum(expected.values()) > 40
    assert run(strategy, load, COUNT, chance).delivered == expected


def test_what_each_costs() -> None:
    table = strategies(COUNT, 60, 1)
    cost = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert all(row["as_expected"] for row in cost.values())
    flooding, filtering = cost["flooding"], cost["filtering"]
    assert flooding["set_up"] == 0
    assert flooding["filters_max"] == 1  # Its own.
    assert filtering["messages"] < flooding["messages"] / 3
    assert filtering["filters"] > flooding["filters"]
    assert cost["advertisements"]["messages"] == filtering["messages"]
    assert cost["advertisements"]["set_up"] < filtering["set_up"]
    assert cost["hash of the topic, flat"]["hops"] < cost["rendezvous on a ring"]["hops"]


def test_the_command() -> None:
    arguments = ["routing", "lab", "--nodes", "20", "--runs", "20", "--json"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["strategy"] for row in rows] == [*STRATEGIES]
    assert all(row["as_expected"] for row in rows)
