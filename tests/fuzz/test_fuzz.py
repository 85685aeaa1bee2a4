"""The fuzzer itself: one seed is one run, and what it takes for right is right."""

from pathlib import Path
from random import Random

import pytest

from entrepot.gateway.kafka.apis import SERVED
from entrepot.wire.amqp.errors import AmqpError
from entrepot.wire.amqp.frames import FrameBuffer
from entrepot.wire.amqp.methods import decode as decode_method
from entrepot.wire.amqp.scan import MethodFrame
from entrepot.wire.http.request import RequestReader
from entrepot.wire.kafka.api import Api, request_class
from entrepot.wire.kafka.frames import read_request_header
from entrepot.wire.kafka.layout import decode
from entrepot.wire.stomp.frames import CLIENT_COMMANDS, VERSIONS, Frame
from tests.fuzz import amqp, http, kafka, mqtt, stomp
from tests.fuzz.driver import SPEAKERS, Fuzzer, read_finding
from tests.fuzz.session import MANNERS, Session, make_session
from tests.unit.wire.mqtt import oracle as mqtt_oracle
from tests.unit.wire.stomp.vectors import feed, reader


@pytest.mark.parametrize("protocol", SPEAKERS)
def test_one_seed_is_one_run(protocol: str) -> None:
    speak = SPEAKERS[protocol]
    made = [make_session(protocol, speak, 1, number) for number in range(20)]
    assert made == [make_session(protocol, speak, 1, number) for number in range(20)]
    assert made != [make_session(protocol, speak, 2, number) for number in range(20)]
    for session in made:
        assert b"".join(session.writes()) == b"".join(session.frames)


def test_every_manner_sends_the_same() -> None:
    for manner in MANNERS:
        session = Session(0, (b"a" * 300, b"", b"b"), manner)
        assert b"".join(session.writes()) == b"a" * 300 + b"b"


def test_requests_of_kafka_are_right_before_they_are_damaged() -> None:
    random, seen = Random(1), set()
    for _ in range(1_500):
        message = memoryview(kafka.request(random))[4:]
        header, position = read_request_header(message)
        layout = request_class(Api(header.api_key), header.version)
        decode(layout, layout, message, position)
        seen.add(header.api_key)
    assert seen == {int(entry.api) for entry in SERVED}


def test_conversations_of_amqp_are_right_before_they_are_damaged() -> None:
    random, said = Random(1), set()
    for _ in range(100):
        inbox = FrameBuffer()
        data = b"".join((*amqp.handshake(random)[:1], *amqp.conversation(random, 1, is_odd=True)))
        while data:
            size = min(len(view := inbox.writable()), len(data))
            view[:size] = data[:size]
            del view
            for event in inbox.received(size):
                assert not isinstance(event, AmqpError), event
                if isinstance(event, MethodFrame):
                    said.add(decode_method(event.payload).NAME)
            data = data[size:]
    assert {"queue.declare", "exchange.bind", "basic.consume", "tx.commit"} <= said


def test_requests_of_http_are_right_before_they_are_damaged() -> None:
    random, methods = Random(1), set()
    for _ in range(300):
        reader, found, data = RequestReader(), [], http.request(random)
        while data:
            size = min(len(view := reader.writable()), len(data))
            view[:size] = data[:size]
            del view
            found += reader.received(size)
            data = data[size:]
        assert reader.failure is None
        (whole,) = found
        methods.add(whole.method)
    assert {"GET", "PUT", "POST", "DELETE"} <= methods


def test_conversations_of_stomp_are_right_before_they_are_damaged() -> None:
    random, said = Random(1), set()
    for version in VERSIONS:
        for _ in range(300):
            data = stomp.frame(random, version)
            if b"content-length" in data:  # It may be wrong: the body is of another size then.
                continue
            for event in feed(reader(version), [data]):
                assert isinstance(event, Frame), event
                said.add(event.command)
    assert said == {*CLIENT_COMMANDS} - {"CONNECT", "STOMP", "DISCONNECT"}


def test_conversations_of_mqtt_are_right_before_they_are_damaged() -> None:
    random, found = Random(1), set()
    for version in (3, 4, 5):
        for _ in range(300):
            codec = mqtt_oracle.opened(version)
            codec.accept(topic_aliases_max=200)
            for event in mqtt_oracle.feed(codec, mqtt.packet(random, version)):
                found.add(type(event).__name__)
    assert {"Publishes", "Acks", "Subscribe", "Unsubscribe", "Pingreq"} <= found
    assert mqtt_oracle.feed(mqtt_oracle.opened(5, is_open=False), mqtt.connect(random, 5))


def test_a_finding_can_be_read_again(tmp_path: Path) -> None:
    fuzzer = Fuzzer("amqp", 1, findings=tmp_path)
    sessions = [Session(7, (b"\0\xff", b""), "tiny"), Session(8, (b"x",), "gone")]
    for session in sessions:
        fuzzer.note(session)
    fuzzer.found("exit", "what it said")
    fuzzer.found("exit", "what it said")
    (path,) = tmp_path.iterdir()
    assert read_finding(path) == ("amqp", sessions)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", SPEAKERS)
def test_a_broker_under_fire(protocol: str, tmp_path: Path) -> None:
    tally = Fuzzer(protocol, 1, findings=tmp_path).run(10_000)
    print(tally)
    assert tally.is_clean, tally.kinds
    # Over MQTT the first mistake ends a connection, so there is an answer to most, and not more.
    assert tally.answers > (400 if protocol == "mqtt" else 1_000)
    assert tally.rss_mib[-1] - tally.rss_mib[0] < 200
