"""The gossip of well-known systems, by name: each has its choices, and reaches everybody."""

from entrepot.cluster.gossip.framework import Mode
from entrepot.cluster.gossip.named import POLICIES, Selection, Sending
from entrepot.lab.policies import named


def test_each_system_is_named_and_reaches_all() -> None:
    table = named(100, 1)
    assert [row[0] for row in table.rows] == [*POLICIES]
    assert set(POLICIES) == {"cassandra", "dynamo", "s3", "bittorrent", "cockroachdb", "fastly"}
    assert [row[4] for row in table.rows] == [100] * 6


def test_what_is_known_of_each() -> None:
    assert POLICIES["cockroachdb"].selection is Selection.LEAST_CONTACTED
    assert POLICIES["bittorrent"].selection is Selection.SAMPLE
    assert POLICIES["cassandra"].sending is Sending.DIGESTS
    assert POLICIES["fastly"].sending is Sending.NEWS
    assert POLICIES["dynamo"].mode is Mode.PUSH_PULL
