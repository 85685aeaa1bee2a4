"""One workload by every strategy: the same deliveries, and what each costs."""

import json

import pytest
from click.testing import CliRunner

from entrepot.cli import main
from entrepot.lab.routing import STRATEGIES, Model, dealing_room, run, strategies
from entrepot.lab.systems import PRESETS, systems

COUNT = 30


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("chance", [1, 2])
def test_every_strategy_delivers_the_same_each_once(strategy: str, chance: int) -> None:
    load = dealing_room(COUNT, 40, chance)
    expected = load.expected()
    assert sum(expected.values()) > 40
    assert run(STRATEGIES[strategy], load, COUNT, chance).delivered == expected


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
    arguments = ["routing", "lab", "strategies", "--nodes", "20", "--runs", "20", "--json"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["strategy"] for row in rows] == [*STRATEGIES]
    assert all(row["as_expected"] for row in rows)


def preset(name: str, model: Model) -> None:
    found = PRESETS[name]
    assert found.model is model
    load = dealing_room(COUNT, 40, 1, model)
    assert sum(load.expected().values()) > 20
    assert run(found.make, load, COUNT, 1).delivered == load.expected()


def test_tib_rendezvous() -> None:
    preset("TIB Rendezvous", Model.SUBJECT)


def test_scribe() -> None:
    preset("Scribe", Model.TOPIC)


def test_tera() -> None:
    preset("TERA", Model.TOPIC)


def test_siena() -> None:
    preset("Siena", Model.CONTENT)


def test_gryphon() -> None:
    preset("Gryphon", Model.CONTENT)


def test_hermes() -> None:
    preset("Hermes", Model.BOTH)


def test_medym() -> None:
    preset("MEDYM", Model.CONTENT)


def test_meghdoot() -> None:
    preset("Meghdoot", Model.CONTENT)


def test_structure_less_content_based_routing() -> None:
    preset("Structure-less CBR", Model.CONTENT)


def test_the_table_of_systems() -> None:
    table = systems(COUNT, 30, 1)
    assert [row[0] for row in table.rows] == [*PRESETS]
    assert all(row[table.columns.index("as_expected")] for row in table.rows)
