"""kill -9 under MQTT, and a network that cuts, delays and repeats: what was answered is there, and
QoS 2 comes exactly once.

A client publishes with QoS 1 and QoS 2, many at a time; another has a session that it subscribed
with QoS 2. In between the broker is killed and started on the same data, or the connections are
cut, and all of it goes on. Both know what they have sent and got. Any number of messages:

    python -m tests.crash.test_mqtt_crash --messages 100000 --kills 50
"""

import argparse
import time
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

import pytest

from entrepot import testing
from entrepot.wire.mqtt.packets import Ack, Subscribe, Subscription
from entrepot.wire.mqtt.properties import PacketType
from entrepot.wire.mqtt.scan import Publishes
from tests.crash.mqtt_peer import KEPT, Peer, Publisher, Subscriber
from tests.crash.mqtt_proxy import MqttProxy
from tests.end_to_end.mqtt_peers import Raw, publish

FINISH_S_MAX = 60.0


@pytest.mark.usefixtures("every_durability")
@pytest.mark.parametrize(
    "kills", [pytest.param(5, id="5"), pytest.param(30, id="30", marks=pytest.mark.slow)]
)
@pytest.mark.timeout(600)
def test_kill(kills: int) -> None:
    random = Random(kills)
    with testing.broker() as broker:
        publisher, subscriber = (
            Publisher(broker.mqtt_address),
            Subscriber(broker.mqtt_address),
        )
        subscriber.start()
        assert subscriber.is_subscribed.wait(30)
        publisher.start()
        for _ in range(kills):
            seen = publisher.next_number
            time.sleep(random.uniform(0.1, 0.6))
            broker.kill()
            broker.start()
            deadline = time.monotonic() + 30
            while publisher.next_number == seen and publisher.error is None:
                assert time.monotonic() < deadline, "nothing was published after a start"
                time.sleep(0.01)
        publisher.stops.set()
        deadline = time.monotonic() + FINISH_S_MAX

        def missing() -> set[int]:
            return publisher.answered.difference(subscriber.got[1], subscriber.got[2])

        while (missing() or not publisher.is_done) and time.monotonic() < deadline:
            assert publisher.error is None
            assert subscriber.error is None
            time.sleep(0.05)
        time.sleep(0.3)
        for peer in (publisher, subscriber):
            peer.is_over.set()
            peer.join(10)
            assert peer.error is None
    doubled = [number for number, count in subscriber.got[2].items() if count > 1]
    print(
        f"{len(publisher.answered)} answered, {kills} kills, lost {len(missing())}, "
        f"QoS 2 doubled {len(doubled)}, QoS 1 repeated "
        f"{sum(count - 1 for count in subscriber.got[1].values())}"
    )
    assert publisher.is_done
    assert len(publisher.answered) == publisher.next_number
    assert not missing()
    assert not doubled
    assert all(number % 2 == 0 for number in subscriber.got[1])
    assert publisher.connections >= 1 + kills // 2


@pytest.mark.parametrize(
    ("messages", "kills"), [(1_000, 3), pytest.param(8_000, 20, marks=pytest.mark.slow)]
)
@pytest.mark.timeout(600)
def test_a_group_that_shares_gets_each_message_once(messages: int, kills: int) -> None:
    """Three sessions share a subscription with QoS 2 while the broker is killed: each message comes
    to one of them, once."""
    random = Random(kills)
    with testing.broker() as broker:
        members = [
            Subscriber(broker.mqtt_address, f"member-{number}", "$share/group/crash/#")
            for number in range(3)
        ]
        publisher = Publisher(broker.mqtt_address, (2,), messages)
        for member in members:
            member.start()
        assert all(member.is_subscribed.wait(30) for member in members)
        publisher.start()
        peers = [publisher, *members]

        def missing() -> int:
            got = set().union(*[dict(member.got[2]) for member in members])
            return len(set(range(messages)) - got)

        for kill in range(kills):
            _wait(peers, lambda kill=kill: missing() <= messages * (kills - kill) // (kills + 1))
            time.sleep(random.uniform(0, 0.2))
            broker.kill()
            broker.start()
        _wait(peers, lambda: publisher.is_done and not missing())
        time.sleep(0.5)  # What would come twice comes now.
        for peer in peers:
            peer.is_over.set()
            peer.join(10)
            assert peer.error is None
    total = sum((member.got[2] for member in members), Counter[int]())
    doubled = [number for number, count in total.items() if count > 1]
    print(f"{messages} messages to a group, {kills} kills: 0 lost, {len(doubled)} doubled")
    assert not doubled
    assert all(member.got[2] for member in members)


def _wait(peers: Sequence[Peer], is_reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + FINISH_S_MAX
    while not is_reached():
        for peer in peers:
            assert peer.error is None, peer.error
        assert time.monotonic() < deadline, "nothing goes on"
        time.sleep(0.02)


@pytest.mark.usefixtures("every_durability")
@pytest.mark.parametrize("is_ordered", [True, False])
def test_what_is_sent_again_is_not_overtaken(is_ordered: bool) -> None:
    """After a crash the broker has to look whether it has a message that is sent again; what the
    client sends behind it waits for that, unless the topic is unordered. Proves T-24."""
    settings = {"mqtt.unordered": [] if is_ordered else ["other/#", "order/+"]}
    with testing.broker(settings=settings) as broker:
        with Raw(broker.mqtt_address) as raw:
            raw.connect("reader", **KEPT)
            raw.send(Subscribe(1, (Subscription("order/#", 2),)))
            raw.read()
        with Raw(broker.mqtt_address) as raw:
            raw.connect("writer", **KEPT)
            for number in range(1, 500):  # There is something to look through.
                raw.publish("order/a", b"x" * 1_000, 1, number)
            for _ in range(1, 500):
                raw.read()
        broker.kill()
        broker.start()
        with Raw(broker.mqtt_address) as raw:
            raw.connect("writer", **KEPT)
            raw.send(  # At once, so that they come in one turn.
                publish("order/a", b"1", 2, 600, is_again=True),
                publish("order/a", b"2", 2, 601),
                publish("order/a", b"3", 1, 602),
            )
            for _ in range(3):
                raw.read()
        found = []
        with Raw(broker.mqtt_address) as raw:
            raw.connect("reader", **KEPT)
            while len(found) < 3:
                event = raw.read()
                assert isinstance(event, Publishes)
                ((_, body),), (packet_id,) = event.messages, event.ids
                raw.send(Ack(PacketType.PUBACK if event.qos == 1 else PacketType.PUBREC, packet_id))
                found += [bytes(body)] if len(body) == 1 else []
        assert found == ([b"1", b"2", b"3"] if is_ordered else [b"2", b"3", b"1"])


def run_through_proxy(messages: int, kills: int, seed: int = 1) -> str:
    """Publish messages of QoS 2 to a session, both through a network in trouble, while the broker
    is killed now and then. Returns what there is to tell; raises AssertionError."""
    random = Random(seed)
    others_off = {"ports.amqp": "off", "ports.stomp": "off"}
    with (
        testing.broker(settings=others_off) as broker,
        MqttProxy(broker.mqtt_address, seed) as proxy,
    ):
        subscriber = Subscriber(proxy.address)
        publisher = Publisher(proxy.address, (2,), messages)
        subscriber.start()
        assert subscriber.is_subscribed.wait(60)
        publisher.start()
        killed = 0
        quiet_s = time.monotonic()
        before = -1
        while len(subscriber.got[2]) < messages or not publisher.is_done:
            for peer in (publisher, subscriber):
                assert peer.error is None, peer.error
            if len(subscriber.got[2]) > before:
                before, quiet_s = len(subscriber.got[2]), time.monotonic()
            assert time.monotonic() - quiet_s < FINISH_S_MAX, f"{before} of {messages}, no more"
            if before > messages * (killed + 0.5) / (kills + 1) and killed < kills:
                time.sleep(random.uniform(0, 0.2))
                broker.kill()
                _start_again(broker)
                killed += 1
            time.sleep(0.02)
        time.sleep(0.5)
        for peer in (publisher, subscriber):
            peer.is_over.set()
            peer.join(10)
    counts = subscriber.got[2]
    lost = messages - len(counts)
    doubled = sum(count - 1 for count in counts.values())
    said = (
        f"{messages} messages of QoS 2, {proxy.cuts} cuts, {proxy.delays} delays, "
        f"{proxy.repeats} repeats, {killed} kills: {lost} lost, {doubled} doubled"
    )
    assert not lost, said
    assert not doubled, said
    assert proxy.cuts, said
    assert proxy.repeats, said
    return said


def _start_again(broker: testing.Broker) -> None:
    """Also if one of the many connections has taken the port for a moment."""
    for _ in range(20):
        try:
            broker.start()
        except RuntimeError as error:
            if "already in use" not in str(error):
                raise
            time.sleep(0.5)
        else:
            return
    raise AssertionError("the port is still in use")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_network_that_cuts_delays_and_repeats() -> None:
    print(run_through_proxy(10_000, 0))


@pytest.mark.usefixtures("every_durability")
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_network_in_trouble_and_kills() -> None:
    print(run_through_proxy(3_000, 5, seed=2))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(run_through_proxy(options.messages, options.kills, options.seed))
