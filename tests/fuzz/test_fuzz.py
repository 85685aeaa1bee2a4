"""The fuzzer itself: one seed is one run, and what it takes for right is right."""

import contextlib
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from entrepot.gateway.kafka.apis import SERVED
from entrepot.gateway.sqs.application import ACTIONS, TARGET
from entrepot.wire.amqp.errors import AmqpError
from entrepot.wire.amqp.frames import FrameBuffer
from entrepot.wire.amqp.methods import decode as decode_method
from entrepot.wire.amqp.scan import MethodFrame
from entrepot.wire.amqp10.errors import Amqp10Error
from entrepot.wire.amqp10.frames import Frame as Amqp10Frame
from entrepot.wire.amqp10.frames import FrameBuffer as Amqp10Buffer
from entrepot.wire.amqp10.frames import Transfers
from entrepot.wire.amqp10.message import split
from entrepot.wire.http.request import RequestReader
from entrepot.wire.kafka.api import Api, request_class
from entrepot.wire.kafka.frames import read_request_header
from entrepot.wire.kafka.layout import decode
from entrepot.wire.mqtt.reasons import MqttError
from entrepot.wire.stomp.frames import CLIENT_COMMANDS, VERSIONS, Frame
from tests.fuzz import amqp, amqp10, http, kafka, mqtt, sqs, stomp
from tests.fuzz.driver import SPEAKERS, Fuzzer, read_finding
from tests.fuzz.session import MANNERS, Damaged, Echo, Session, Speaker, make_session
from tests.unit.wire.mqtt import oracle as mqtt_oracle
from tests.unit.wire.stomp.vectors import feed, reader

DEPTH_MIN = 0.6  # Of what is sent, the broker has looked at so much.


@pytest.mark.parametrize("protocol", SPEAKERS)
def test_one_seed_is_one_run(protocol: str) -> None:
    speak = SPEAKERS[protocol].speak
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


def test_conversations_of_amqp_1_0_are_right_before_they_are_damaged() -> None:
    random, said = Random(1), set()
    for _ in range(100):
        inbox = Amqp10Buffer()
        data = amqp10.greeting(random)[-2] + b"".join(amqp10.conversation(random))
        while data:
            size = min(len(view := inbox.writable()), len(data))
            view[:size] = data[:size]
            del view
            for event in inbox.received(size):
                assert not isinstance(event, Amqp10Error), event
                if isinstance(event, Transfers):
                    assert all(split(payload) for _, payload in event.transfers)
                elif isinstance(event, Amqp10Frame):
                    said.add(type(event.performative).__name__)
            data = data[size:]
    assert said == {"Open", "Begin", "Attach", "Flow", "Disposition", "Detach"}


@pytest.mark.parametrize("protocol", [http, sqs])
def test_requests_over_http_are_right_before_they_are_damaged(protocol: Any) -> None:
    random, methods, actions = Random(1), set(), set()
    for _ in range(1_200):
        reader, found, data = RequestReader(), [], protocol.request(random)
        if isinstance(data, Damaged):
            continue
        while data:
            size = min(len(view := reader.writable()), len(data))
            view[:size] = data[:size]
            del view
            found += reader.received(size)
            data = data[size:]
        assert reader.failure is None
        (whole,) = found
        methods.add(whole.method)
        actions.add(whole.headers.get("x-amz-target", "").removeprefix(TARGET))
    if protocol is http:
        assert {"GET", "PUT", "POST", "DELETE"} <= methods
    else:
        assert {*ACTIONS, ""} <= actions


def test_conversations_of_stomp_are_right_before_they_are_damaged() -> None:
    random, said = Random(1), set()
    for version in VERSIONS:
        for _ in range(100):
            for event in feed(reader(version), stomp.conversation(random, version)):
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
                assert not isinstance(event, MqttError), event
                found.add(type(event).__name__)
    assert {"Publishes", "Acks", "Subscribe", "Unsubscribe"} <= found
    assert mqtt_oracle.feed(mqtt_oracle.opened(5, is_open=False), mqtt.connect(random, 5))


def test_a_receipt_that_was_heard_is_said_again() -> None:
    said = sqs.parameters(Random(1), "DeleteMessage", "one", is_odd=False)["ReceiptHandle"]
    heard = f"{said[:8]}-19a2b3c4d5e-0-1f-2a"
    learned = sqs.learn(b'{"ReceiptHandle":"' + heard.encode() + b'"}')
    assert learned == {said.encode(): heard[:20].encode() + b"-00000000-0000001f-0000002a"}


SPEAKER = Speaker(lambda _: [], re.compile(rb"<(.)>"))
TALK = Session(
    0,
    (b"1", b"2", Echo(b"", b"a"), Damaged(b"3"), b"4", Echo(b"", b"b"), b"5", Echo(b"", b"a")),
    "whole",
)


@pytest.mark.parametrize(
    ("answers", "looked_at"),
    [("", (0, 0)), ("a", (2, 0)), ("b", (2, 1)), ("ab", (4, 1)), ("aba", (5, 2)), ("aaa", (3, 1))],
)
def test_echoes_tell_how_far_the_broker_came(answers: str, looked_at: tuple[int, int]) -> None:
    heard = Counter(SPEAKER.answers("".join(f"<{each}>" for each in answers).encode(), 0))
    assert SPEAKER.looked_at(TALK, heard) == looked_at
    assert SPEAKER.is_over(TALK, heard) == (answers in ("aba", "aaa"))
    assert TALK.count == 5


def test_an_answer_in_two_pieces_counts_once() -> None:
    assert list(SPEAKER.answers(b"<a><b>", 4)) == [b"b"]
    assert list(SPEAKER.answers(b"<a><b>", 0)) == [b"a", b"b"]


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
@pytest.mark.parametrize("moment", ["*/data.log", "*/data/endpoints.json"])
def test_when_it_is_ended_it_leaves_nothing_behind(tmp_path: Path, moment: str) -> None:
    """While its broker starts, and while it talks to it."""
    command = [sys.executable, "-m", "tests.fuzz", "--findings", str(tmp_path / "found")]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None and not [*tmp_path.glob(moment)]:
            time.sleep(0.01)
        process.terminate()
        assert process.wait(60) == 143
    assert [*tmp_path.iterdir()] == []
    assert not [*_processes_that_name(tmp_path)]


def _processes_that_name(path: Path) -> Iterator[str]:
    for each in Path("/proc").glob("[0-9]*/cmdline"):  # None where there is no such thing.
        with contextlib.suppress(OSError):
            if str(path).encode() in (said := each.read_bytes()):
                yield said.decode(errors="replace")


@pytest.mark.slow
@pytest.mark.parametrize("protocol", SPEAKERS)
def test_a_broker_under_fire(protocol: str, tmp_path: Path) -> None:
    tally = Fuzzer(protocol, 1, findings=tmp_path).run(10_000)
    print(tally)
    assert tally.is_clean, tally.kinds
    # Or else most of it came after a mistake, and nobody has looked at it.
    assert tally.depth > DEPTH_MIN
    assert tally.after_damage > 0
    assert tally.rss_mib[-1] - tally.rss_mib[0] < 200
