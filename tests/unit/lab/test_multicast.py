"""The labs of multicast: what each way costs."""

import math

from click.testing import CliRunner

from entrepot.cli import main
from entrepot.cluster.multicast.replication import Replication
from entrepot.lab.multicast import LABS
from entrepot.lab.underlay import Underlay
from entrepot.lab.ways import lookups, scribe_tree, walks, ways
from entrepot.lab.world import SeededEntropy


def test_messages_at_the_source() -> None:
    table = ways(60, 1)
    cost = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    unicast = cost["unicast from the source"]
    assert (unicast["messages"], unicast["at_the_source"], unicast["reached"]) == (59, 59, 60)
    assert unicast["link_stress_max"] == 59  # The link of the source.
    assert unicast["stretch"] == 1
    native = cost["IP multicast, by the routers"]
    assert (native["at_the_source"], native["link_stress_max"], native["stretch"]) == (1, 1, 1)
    for way, most in (
        ("a tree of two children", 2),
        ("a tree of eight children", 8),
        ("a mesh of four, flooded", 4),
        ("Scribe over Chord", 4),
    ):
        assert cost[way]["at_the_source"] <= most, way
        assert cost[way]["reached"] == 60, way
        assert cost[way]["link_stress_max"] < 59, way
        assert cost[way]["stretch"] > 1, way
    assert cost["a tree of two children"]["messages"] == 59  # One path to each.
    assert cost["a mesh of four, flooded"]["messages"] > 59  # Several.


def test_unicast() -> None:
    got: list[bytes] = []
    source = Replication(0, lambda message: got.append(message.body))
    assert [peer for peer, _ in source.send(b"m", range(4))] == [1, 2, 3]
    assert got == [b"m"]
    other = Replication(1, lambda message: got.append(message.body))
    assert other.receive(0, source.send(b"n", [1])[0][1], 0) == ()
    assert got == [b"m", b"n", b"n"]


def test_the_network_below() -> None:
    underlay = Underlay(40, 10, SeededEntropy(1))
    for one, other in ((0, 1), (0, 10), (3, 39), (7, 7)):
        path = underlay.path(one, other)
        assert sorted(path) == sorted(underlay.path(other, one)) or len(path) == len(
            underlay.path(other, one)
        )
        assert len(path) == underlay.delay(one, other)
        if one != other:
            assert one in path[0]
            assert other in path[-1]
    assert underlay.stress([(0, 1), (0, 1)]) == dict.fromkeys(underlay.path(0, 1), 2)
    leaves = [link for link in underlay.native_tree(0) if min(link) < 40]
    assert len(leaves) == 40  # One link to each host.


def test_lookups_take_log_n_hops() -> None:
    table = lookups((16, 128), 150, 1)
    for count, _, right, half, hops, most in table.rows:
        assert right == 1
        assert hops <= half
        assert most <= math.log2(count)


def test_the_tree_is_shown() -> None:
    table = scribe_tree(30, 1)
    whats = [row[1] for row in table.rows]
    assert whats.count("root") == 1
    assert sum(row[2] for row in table.rows) == 10
    assert "10 of 10 members have it" in table.notes[0]


def test_hop_limits_and_walks() -> None:
    table = walks(60, 3, 1)
    flooding, *others = table.rows
    assert flooding[3] == 60
    limited = [row[3] for row in others if row[0] == "with a hop limit"]
    assert limited == sorted(limited)
    assert 3 < others[0][2] <= 4  # All neighbours; two may be the same.
    assert others[1][2] > 2 * others[0][2]  # And all of theirs, the sender included.
    assert others[-1][3] == 60


def test_the_command() -> None:
    run = CliRunner().invoke
    result = run(main, ["multicast", "lab", "scribe", "--nodes", "12"])
    assert result.exit_code == 0, result.output
    assert "root" in result.output
    assert all(name in run(main, ["multicast", "lab", "--help"]).output for name in LABS)
    for wrong in ("127.0.0.1:5000", "240.0.0.1:5000", "239.1.1.1", "239.1.1.1:0"):
        result = run(main, ["multicast", "send", wrong, "x"])
        assert result.exit_code == 2, result.output
    assert "1110" in run(main, ["multicast", "listen", "10.0.0.1:5000"]).output
