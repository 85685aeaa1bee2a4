"""Headers and properties: what goes in comes out, and what others wrote can be read."""

import pytest

from entrepot.core.errors import PeerError
from entrepot.core.message import Envelope
from entrepot.core.neutral import NEUTRAL, Head
from entrepot.core.properties import Death, Properties
from entrepot.gateway.amqp.format import AMQP
from entrepot.gateway.stomp.headers import MessageHeads, encode_head, envelope_of
from entrepot.wire.amqp.properties import BasicProperties, encode
from entrepot.wire.stomp import limits as stomp_limits
from entrepot.wire.stomp.frames import SERVER_COMMANDS, VERSIONS, Frame, FrameReader
from tests.unit.wire.stomp.vectors import feed

SENT = {
    "destination": "/queue/a",
    "content-type": "text/plain",
    "content-encoding": "gzip",
    "correlation-id": "c",
    "reply-to": "/queue/replies",
    "amqp-message-id": "m",
    "type": "t",
    "user-id": "guest",
    "app-id": "app",
    "priority": "3",
    "expiration": "60000",
    "timestamp": "1700000000",
    "persistent": "false",
    "mine": "a value: with\nall kinds\r of \\ things",
    "x:y": "z",
    "empty": "",
}


def told(envelope: Envelope, version: str = "1.2") -> dict[str, str]:
    """The headers, as a client reads them."""
    reader = FrameReader(commands=SERVER_COMMANDS, body_bytes_max=9)
    connected = b"CONNECTED\nversion:%s\n\n\0" % version.encode()
    _, frame = feed(reader, [connected + b"MESSAGE\n" + encode_head(envelope, version) + b"\n\0"])
    assert isinstance(frame, Frame)
    return dict(frame.headers)


def test_what_is_sent_is_told_again() -> None:
    extra = {"receipt": "r", "transaction": "t", "content-length": "3"}
    envelope = envelope_of({**SENT, **extra}, "", "a", None)
    assert told(envelope) == SENT
    properties = envelope.properties
    assert properties.message_id == "m"
    assert (properties.priority, properties.ttl_ms) == (3, 60_000)
    assert (properties.timestamp, properties.is_persistent) == (1_700_000_000, False)
    assert set(properties.headers) == {"mine", "x:y", "empty"}


def test_older_versions_are_told_what_they_can_express() -> None:
    envelope = envelope_of({**SENT, "mine": "a\nb", "plain": "a:b"}, "", "a", None)
    assert {"plain": "a:b"}.items() <= told(envelope, "1.0").items()
    assert not told(envelope, "1.0").keys() & {"mine", "x:y", "x"}
    assert told(envelope, "1.1")["mine"] == "a\nb"


def test_a_message_is_permanent_unless_it_says_otherwise() -> None:
    for given, is_persistent in (({}, True), ({"persistent": "true"}, True)):
        envelope = envelope_of(given, "", "a", None)
        assert envelope.handling.is_persistent is is_persistent
    assert not envelope_of({"persistent": "false"}, "", "a", None).handling.is_persistent


def test_values_that_are_no_properties_stay_headers() -> None:
    sent = {"timestamp": "yesterday", "content-type": 300 * "x"}
    envelope = envelope_of(sent, "", "a", None)
    assert envelope.properties.headers == sent
    assert sent.items() <= told(envelope).items()
    assert envelope_of({"timestamp": "007"}, "", "a", None).properties.headers == {
        "timestamp": "007"
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("priority", "256"),
        ("priority", "high"),
        ("priority", "-1"),
        ("expiration", "soon"),
        ("expiration", "999999999999999"),
        ("message-id", "1"),
    ],
)
def test_values_that_are_refused(name: str, value: str) -> None:
    with pytest.raises(PeerError, match=name):
        envelope_of({name: value}, "", "a", None)


def test_a_delay_is_for_delayed_exchanges() -> None:
    assert envelope_of({"x-delay": "500"}, "d", "a", None).handling.delay_ms == 500
    for wrong in ("", "-5", "soon", str(2**32)):
        assert envelope_of({"x-delay": wrong}, "d", "a", None).handling.delay_ms == 0


def test_what_amqp_wrote() -> None:
    properties = BasicProperties(
        content_type="text/plain",
        delivery_mode=2,
        message_id="m",
        reply_to="answers",
        priority=4,
        expiration="9",
        headers={
            "text": "ä",
            "number": -7,
            "float": 1.5,
            "yes": True,
            "bytes": b"\xff",
            "readable": b"abc",
            "nothing": None,
            "table": {"a": 1},
            "array": [1],
            "message-id": "not mine",
            "content-type": "not the property",
            "a\nb": "c\0d",
        },
    )
    envelope = Envelope("logs", "k/1", encode(properties), AMQP)
    assert told(envelope) == {
        "destination": "/exchange/logs/k%2F1",
        "content-type": "text/plain",
        "amqp-message-id": "m",
        "reply-to": "/reply-queue/answers",
        "priority": "4",
        "expiration": "9",
        "persistent": "true",
        "text": "ä",
        "number": "-7",
        "float": "1.5",
        "yes": "true",
        "readable": "abc",
        "nothing": "",
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_no_header_becomes_another_one_or_a_frame(version: str) -> None:
    evil = {"a\nmessage-id": "1", "b": "x\n\n\0ERROR\nmessage:gone\n\n\0", "c": "d\r\nmessage-id:2"}
    head = NEUTRAL.write(Head(Properties(headers=evil)))
    found = told(Envelope("", "q", head, NEUTRAL), version)
    assert "message-id" not in found
    assert "b" not in found


def test_why_it_is_a_dead_letter() -> None:
    deaths = (Death("work", "rejected", exchange="ex"), Death("old", "expired"))
    envelope = Envelope("", "dead", NEUTRAL.write(Head(deaths=deaths)), NEUTRAL)
    assert told(envelope) == {
        "destination": "/queue/dead",
        "x-last-death-reason": "rejected",
        "x-last-death-queue": "work",
        "x-last-death-exchange": "ex",
    }


def test_heads_are_encoded_once_and_few_are_remembered() -> None:
    heads = MessageHeads()
    one, same = (envelope_of({"a": "b"}, "", "q", None) for _ in range(2))
    assert heads.of(one, "1.2") is heads.of(same, "1.2")
    assert heads.of(one, "1.1") == heads.of(one, "1.2")
    for number in range(2 * stomp_limits.MESSAGE_HEADS_CACHED_MAX):
        heads.of(envelope_of({"n": str(number)}, "", "q", None), "1.2")
    assert len(heads._known) <= stomp_limits.MESSAGE_HEADS_CACHED_MAX
    heads = MessageHeads()
    heads.of(envelope_of({"n": 1_000 * "x"}, "", "q", None), "1.2")
    assert not heads._known
    heads = MessageHeads()
    table = encode(BasicProperties(headers={"table": {"x": 1_000 * "x"}}))  # It is not told.
    heads.of(Envelope("", "q", table, AMQP), "1.2")
    assert not heads._known
