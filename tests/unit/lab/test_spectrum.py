"""The spectrum of consistency: what each model guarantees holds, and more does not."""

import json

import pytest
from click.testing import CliRunner

from entrepot.cli import main
from entrepot.cluster.gossip.framework import Peer
from entrepot.lab.delivery_models import Links
from entrepot.lab.spaces import LABS
from entrepot.lab.spectrum import ROWS, look, spectrum


@pytest.mark.parametrize("model", ROWS)
@pytest.mark.parametrize("chance", range(4))
def test_what_is_guaranteed_is_kept(model: str, chance: int) -> None:
    assert ROWS[model].is_kept(look(model, 8, chance))


def test_the_eight_rows() -> None:
    table = spectrum(8, 1)
    assert [row[0] for row in table.rows] == [
        "virtual synchrony",
        "reliable multicast",
        "causal",
        "eventual",
        "REST",
        "publish/subscribe",
        "gossip",
        "best effort",
    ]
    found = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert all(row["kept"] for row in found.values())
    strongest, weakest = found["virtual synchrony"], found["best effort"]
    assert (strongest["lost_%"], strongest["one_order"]) == (0, True)
    assert weakest["lost_%"] > 0
    assert weakest["messages"] == min(row["messages"] for row in found.values())
    reliable, causal = found["reliable multicast"], found["causal"]
    assert reliable["not_FIFO"] > 0
    assert causal["not_FIFO"] == causal["before_cause"] == 0
    assert not causal["one_order"]
    assert reliable["messages"] == max(row["messages"] for row in found.values())
    assert {name for name, row in found.items() if row["scalability"] == "good"} == {
        "eventual",
        "gossip",
    }


def test_a_model_is_not_held_for_a_stronger_one() -> None:
    """The same checks find what weaker models do not keep."""
    for weaker, stronger in (
        ("best effort", "reliable multicast"),
        ("publish/subscribe", "REST"),
        ("reliable multicast", "causal"),
        ("causal", "virtual synchrony"),
        ("gossip", "eventual"),
    ):
        assert not all(ROWS[stronger].is_kept(look(weaker, 8, chance)) for chance in range(4))


@pytest.mark.parametrize("in_order", [True, False])
def test_links(in_order: bool) -> None:
    one, other = Links(in_order), Links(in_order)
    peer: Peer = 1
    sent = [one.post(peer, body)[1] for body in "abc"]
    heard, acks = other.hear(0, sent[1])
    assert heard == ([] if in_order else ["b"])
    one.hear(peer, acks[0][1])
    assert [message.body for _, message in one.repeat()] == ["a", "c"]
    assert other.hear(0, sent[1])[0] == []  # Repeated.
    assert other.hear(0, sent[0])[0] == (["a", "b"] if in_order else ["a"])
    heard, acks = other.hear(0, sent[2])
    assert heard == ["c"]
    one.hear(peer, acks[0][1])
    assert one.repeat() == []
    one.post(peer, "d")
    while one.repeat():
        pass  # Until the other is taken for dead.


def test_the_command() -> None:
    run = CliRunner().invoke
    result = run(main, ["spaces", "lab", "spectrum", "--nodes", "9", "--json"])
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.output.splitlines()]
    assert [row["model"] for row in rows] == [*ROWS]
    assert all(name in run(main, ["spaces", "lab", "--help"]).output for name in LABS)
