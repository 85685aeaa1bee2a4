"""MQTT with paho's client: qualities of service, sessions, retained messages, wills."""

import time
from collections.abc import Iterator
from itertools import product

import pytest

from entrepot.testing import Broker, broker
from tests.end_to_end.mqtt_peers import VERSIONS, Client, eventually

versions = pytest.mark.parametrize("version", [*VERSIONS])


@pytest.fixture
def address(server: Broker) -> tuple[str, int]:
    return server.mqtt_address


@versions
@pytest.mark.parametrize(("published", "granted"), [*product(range(3), range(3))])
def test_the_delivered_quality_is_the_lesser_one(
    address: tuple[str, int], version: str, published: int, granted: int
) -> None:
    """Proves NUM-7 and T-17."""
    topic = f"matrix/{version}/{published}/{granted}"
    with Client(address, f"m-{topic}", version) as client:
        assert client.subscribe(topic, qos=granted) == [granted]
        for number in range(20):
            client.publish(topic, b"%d" % number, published)
        client.wait_for(20)
        assert client.payloads == [b"%d" % number for number in range(20)]
        assert {each.qos for each in client.got} == {min(published, granted)}
        assert not any(each.dup or each.retain for each in client.got)


@versions
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_many_at_once_come_all_and_in_order(
    address: tuple[str, int], version: str, qos: int
) -> None:
    topic = f"many/{version}/{qos}"
    with (
        Client(address, f"many-from-{topic}", version) as sender,
        Client(address, f"many-to-{topic}", version) as receiver,
    ):
        receiver.subscribe(topic, qos=qos)
        sent = [sender.paho.publish(topic, b"%d" % number, qos) for number in range(2_000)]
        for each in sent:
            each.wait_for_publish(30)
        assert receiver.wait_for(2_000) == [b"%d" % number for number in range(2_000)]


FILTERS = [
    (
        "sport/tennis/+",
        ["sport/tennis/player1", "sport/tennis/player2"],
        ["sport/tennis/player1/ranking"],
    ),
    ("sport/+", ["sport/"], ["sport", "sport/a/b"]),
    ("+", ["sport"], ["/finance", "sport/a"]),
    ("+/tennis/#", ["sport/tennis", "sport/tennis/a/b"], ["tennis", "a/b/tennis"]),
    ("+/+", ["/finance"], ["finance"]),
    ("/+", ["/finance"], ["finance", "a/finance"]),
    (
        "sport/tennis/player1/#",
        [
            "sport/tennis/player1",
            "sport/tennis/player1/ranking",
            "sport/tennis/player1/score/wimbledon",
        ],
        ["sport/tennis/player2"],
    ),
    ("sport/#", ["sport", "sport/"], ["sports"]),
    ("#", ["a", "a/b", "/"], []),
    ("a.b/+", ["a.b/c.d"], ["a/b/c"]),
]  # fmt: skip


@pytest.mark.parametrize(("filter", "matching", "others"), FILTERS, ids=[f for f, *_ in FILTERS])
def test_wildcards(
    address: tuple[str, int], filter: str, matching: list[str], others: list[str]
) -> None:
    """Proves T-04 to T-10."""
    with Client(address, f"wild {filter}") as client:
        client.subscribe(filter, f"end/of/{filter.replace('+', 'p').replace('#', 'h')}/it", qos=1)
        for topic in (*others, *matching):
            client.publish(topic, topic.encode(), 1)
        client.publish(f"end/of/{filter.replace('+', 'p').replace('#', 'h')}/it", b"end", 1)
        client.until(lambda: b"end" in client.payloads)
        got = [topic for topic, text in client.texts if text == topic]
        assert got == matching


def test_overlapping_subscriptions_are_one_message_at_the_best_quality(
    address: tuple[str, int],
) -> None:
    """Proves T-18."""
    with Client(address, "overlap") as client:
        client.subscribe("over/#", qos=0, identifier=1)
        client.subscribe("over/+", qos=2, identifier=2)
        client.publish("over/lap", b"x", 2)
        client.publish("over/lap", b"y", 1)
        client.wait_for(2)
        assert [(each.payload, each.qos) for each in client.got] == [(b"x", 2), (b"y", 1)]
        assert sorted(client.got[0].properties.SubscriptionIdentifier) == [1, 2]


@versions
@pytest.mark.parametrize("qos", [1, 2])
def test_a_session_keeps_what_came_while_its_client_was_away(
    address: tuple[str, int], version: str, qos: int
) -> None:
    """Proves T-20."""
    name, topic = f"away-{version}-{qos}", f"away/{version}/{qos}"
    with Client(address, name, version, clean=False, expiry_s=600) as client:
        assert not client.flags.session_present
        client.subscribe(topic, qos=qos)
    with Client(address, f"{name}-sender", version) as sender:
        for number in range(100):
            sender.publish(topic, b"%d" % number, qos)
    with Client(address, name, version, clean=False, expiry_s=600) as client:
        assert client.flags.session_present or version == "3.1"
        assert client.wait_for(100) == [b"%d" % number for number in range(100)]
    with Client(address, name, version, clean=True) as client:
        assert not client.flags.session_present
        client.publish(topic, b"for nobody", qos)
    with Client(address, name, version, clean=False) as client:
        assert not client.flags.session_present
        time.sleep(0.1)
        assert not client.got


def test_a_session_of_version_5_ends_when_it_expires(address: tuple[str, int]) -> None:
    with Client(address, "expires", clean=False, expiry_s=1) as client:
        client.subscribe("expires", qos=1)

    def is_gone() -> bool:
        time.sleep(1.2)
        with Client(address, "expires", clean=False, expiry_s=1) as again:
            return not again.flags.session_present

    eventually(is_gone)


def test_unacknowledged_messages_are_sent_again_in_their_order(address: tuple[str, int]) -> None:
    """Proves T-15 and T-23."""
    lazy = Client(address, "lazy", clean=False, expiry_s=600, acknowledges=False)
    with lazy:
        lazy.subscribe("lazy", qos=1)
        with Client(address, "lazy-sender") as sender:
            for number in range(10):
                sender.publish("lazy", b"%d" % number, 1)
        lazy.wait_for(10)
        first = [each.mid for each in lazy.got]
    with Client(address, "lazy", clean=False, expiry_s=600) as again:
        assert again.wait_for(10) == [b"%d" % number for number in range(10)]
        assert [each.mid for each in again.got] == first
        assert all(each.dup for each in again.got)


@versions
def test_retained_messages(address: tuple[str, int], version: str) -> None:
    """Proves T-22."""
    topic = f"retained/{version}"
    with Client(address, f"retains-{version}", version) as sender:
        sender.publish(f"{topic}/a", b"old", 1, retain=True)
        sender.publish(f"{topic}/a", b"new", 2, retain=True)
        sender.publish(f"{topic}/a", b"passing", 1)
        sender.publish(f"{topic}/b", b"other", 0, retain=True)
        sender.publish(f"{topic}/c", b"gone", 1, retain=True)
        sender.publish(f"{topic}/c", b"", 1, retain=True)
        with Client(address, f"late-{version}", version) as late:
            late.subscribe(f"{topic}/#", qos=2)
            late.wait_for(2)
            sender.publish(f"{topic}/a", b"live", 1, retain=True)
            late.wait_for(3)
            found = sorted(
                (each.topic[-1], each.payload, each.qos, each.retain) for each in late.got[:2]
            )
            assert found == [("a", b"new", 2, True), ("b", b"other", 0, True)]
            assert (late.got[2].payload, late.got[2].retain) == (b"live", False)


def test_which_retained_messages_a_subscription_wants(address: tuple[str, int]) -> None:
    with Client(address, "handling") as client:
        client.publish("handling", b"kept", 1, retain=True)
        client.subscribe("handling", qos=1, retainHandling=2)
        client.subscribe("handling", qos=1, retainHandling=1)
        client.publish("handling", b"mark", 1)
        client.wait_for(1)
        assert client.payloads == [b"mark"]
        client.subscribe("handling", qos=1, retainHandling=0, retainAsPublished=True)
        client.wait_for(2)
        assert client.payloads == [b"mark", b"kept"]
        client.publish("handling", b"flagged", 1, retain=True)
        client.wait_for(3)
        assert client.got[2].retain


@versions
def test_a_will_is_published_when_a_client_vanishes(address: tuple[str, int], version: str) -> None:
    topic = f"will/{version}"
    with Client(address, f"heir-{version}", version) as heir:
        heir.subscribe(topic, qos=1)
        will = {"topic": topic, "payload": b"bye", "qos": 1, "retain": True}
        polite = Client(address, f"polite-{version}", version, will=will).connect()
        polite.close()
        lost = Client(address, f"lost-{version}", version, will=will).connect()
        lost.vanish()
        heir.wait_for(1)
        time.sleep(0.2)
        assert heir.payloads == [b"bye"]
    with Client(address, f"late-heir-{version}", version) as late:
        late.subscribe(topic)
        assert late.wait_for(1) == [b"bye"]
        assert late.got[0].retain


def test_a_session_is_taken_over(address: tuple[str, int]) -> None:
    first = Client(address, "one", clean=False, expiry_s=60).connect()
    first.paho.reconnect_delay_set(60)
    first.subscribe("taken/over", qos=1)
    with Client(address, "one", clean=False, expiry_s=60) as second:
        first.until(lambda: first.disconnected is not None)
        assert first.disconnected == 0x8E
        assert second.flags.session_present
        second.publish("taken/over", b"x", 1)
        assert second.wait_for(1) == [b"x"]
    first.close()
    assert not first.got


def test_no_local(address: tuple[str, int]) -> None:
    with Client(address, "local") as client, Client(address, "remote") as other:
        client.subscribe("local", qos=1, noLocal=True)
        client.publish("local", b"mine", 1)
        other.publish("local", b"theirs", 1)
        assert client.wait_for(1) == [b"theirs"]


def test_properties_come_as_they_were_written(address: tuple[str, int]) -> None:
    with Client(address, "writer-5") as writer, Client(address, "reader-3", "3.1.1") as old:
        writer.subscribe("properties", qos=1)
        old.subscribe("properties", qos=1)
        writer.publish(
            "properties",
            b"x",
            1,
            ContentType="text/plain",
            ResponseTopic="answers/here",
            CorrelationData=b"\x00\xff",
            MessageExpiryInterval=600,
            PayloadFormatIndicator=1,
            UserProperty=[("a", "1"), ("a", "2"), ("ä", "")],
        )
        writer.wait_for(1)
        found = writer.got[0].properties
        assert found.ContentType == "text/plain"
        assert found.ResponseTopic == "answers/here"
        assert found.CorrelationData == b"\x00\xff"
        assert 590 <= found.MessageExpiryInterval <= 600
        assert found.PayloadFormatIndicator == 1
        assert found.UserProperty == [("a", "1"), ("a", "2"), ("ä", "")]
        assert old.wait_for(1) == [b"x"]


def test_a_message_that_nobody_gets_says_so(address: tuple[str, int]) -> None:
    with Client(address, "alone") as client:
        assert client.publish("nobody/listens", b"x", 1) == 0x10
        client.subscribe("somebody/listens", qos=1)
        assert client.publish("somebody/listens", b"x", 1) == 0


def test_a_message_expires_while_its_reader_is_away(address: tuple[str, int]) -> None:
    with Client(address, "slow-reader", clean=False, expiry_s=60) as client:
        client.subscribe("expiring", qos=1)
    with Client(address, "expiring-sender") as sender:
        sender.publish("expiring", b"short", 1, MessageExpiryInterval=1)
        sender.publish("expiring", b"long", 1, MessageExpiryInterval=1_000)
        sender.publish("expiring", b"always", 1)
    time.sleep(1.5)
    with Client(address, "slow-reader", clean=False, expiry_s=60) as client:
        assert client.wait_for(2) == [b"long", b"always"]
        assert 900 < client.got[0].properties.MessageExpiryInterval < 1_000


@pytest.fixture(scope="module")
def shared() -> Iterator[Broker]:
    with broker() as started:
        yield started


@versions
def test_a_shared_subscription_divides_its_messages(shared: Broker, version: str) -> None:
    address, topic = shared.mqtt_address, f"shared/{version}"
    with (
        Client(address, f"s1-{version}", version) as one,
        Client(address, f"s2-{version}", version) as two,
        Client(address, f"s3-{version}", version) as sender,
    ):
        for each in (one, two):
            each.subscribe(f"$share/workers/{topic}", qos=1)
        for number in range(100):
            sender.publish(topic, b"%d" % number, 1)
        eventually(lambda: len(one.got) + len(two.got) == 100)
        assert sorted(map(int, one.payloads + two.payloads)) == [*range(100)]
        assert one.got
        assert two.got


def test_a_shared_group_keeps_messages_while_nobody_is_there(shared: Broker) -> None:
    address = shared.mqtt_address
    for name in ("w1", "w2"):
        with Client(address, name, clean=False, expiry_s=600) as worker:
            worker.subscribe("$share/keepers/kept/#", qos=1)
    with Client(address, "k-sender") as sender:
        for number in range(12):
            sender.publish(f"kept/{number}", b"%d" % number, 1)
    with (
        Client(address, "w1", clean=False, expiry_s=600) as one,
        Client(address, "w2", clean=False, expiry_s=600) as two,
    ):
        eventually(lambda: len(one.got) + len(two.got) >= 12)
        time.sleep(0.2)
        assert sorted(map(int, one.payloads + two.payloads)) == [*range(12)]


def test_unsubscribing(address: tuple[str, int]) -> None:
    with Client(address, "unsubscribes") as client:
        client.subscribe("un/a", "un/b", qos=1)
        assert client.unsubscribe("un/a", "un/c") == [0, 0x11]
        client.publish("un/a", b"no", 1)
        client.publish("un/b", b"yes", 1)
        assert client.wait_for(1) == [b"yes"]


@versions
def test_a_client_without_a_name(address: tuple[str, int], version: str) -> None:
    with Client(address, "" if version != "3.1" else "named", version) as client:
        assert client.connected == 0
        if version == "5":
            assert client.properties.AssignedClientIdentifier.startswith("auto-")
