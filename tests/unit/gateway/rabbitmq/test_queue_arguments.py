"""Arguments of queues, and RabbitMQ's words for what is wrong with them."""

from typing import Any

import pytest

from entrepot.broker.queue.settings import QueueSettings, WhenFull
from entrepot.core import limits
from entrepot.core.errors import InvalidQueue, QueueMismatch
from entrepot.core.value import freeze_table
from entrepot.gateway.rabbitmq.queue_arguments import QueueDeclaration


def declared(arguments: dict[str, object] | None = None, **fields: Any) -> QueueDeclaration:
    return QueueDeclaration("/", "q", freeze_table(arguments or {}), **fields)


def parse(arguments: dict[str, object], **fields: Any) -> QueueSettings:
    return declared(arguments, **fields).spec().settings


def test_all_of_them() -> None:
    assert parse({}) == QueueSettings()
    parsed = parse(
        {
            "x-message-ttl": 1,
            "x-expires": 2,
            "x-max-length": 3,
            "x-max-length-bytes": 4,
            "x-overflow": "reject-publish-dlx",
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "k",
            "x-max-priority": 5,
            "x-single-active-consumer": True,
            "x-queue-mode": "lazy",
            "x-queue-version": 2,
            "x-retention-ms": 6,
            "x-retention-bytes": 7,
            "x-of-somebody": [1],
        }
    )
    assert parsed == QueueSettings(
        ttl_ms=1,
        expires_ms=2,
        length_max=3,
        length_bytes_max=4,
        when_full=WhenFull.REFUSE_AND_DEAD_LETTER,
        dead_letter_exchange="",
        dead_letter_key="k",
        priority_max=5,
        single_active=True,
        retention_ms=6,
        retention_bytes=7,
    )
    assert parsed.lane_count == 6
    assert parse({"x-max-priority": 0}).lane_count == 2
    assert parse({"x-single-active-consumer": False}).single_active is False
    assert parse({}).retention_ms == limits.QUEUE_RETENTION_MS


def test_quorum_and_stream() -> None:
    quorum = {"x-queue-type": "quorum"}
    assert parse(quorum, durable=True).delivery_limit == 20
    assert parse(quorum | {"x-delivery-limit": 3}, durable=True).delivery_limit == 3
    assert parse(quorum | {"x-delivery-limit": -1}, durable=True).delivery_limit is None
    strategy = quorum | {"x-dead-letter-strategy": "at-least-once", "x-dead-letter-exchange": "x"}
    assert parse(strategy, durable=True).dead_letter_at_least_once
    stream: dict[str, object] = {"x-queue-type": "stream", "x-max-age": "7D"}
    parsed = parse(stream | {"x-stream-max-segment-size-bytes": 100}, durable=True)
    assert (parsed.age_ms_max, parsed.segment_bytes) == (604_800_000, 100)
    assert parse({"x-queue-type": "classic"}).delivery_limit is None


WRONG: dict[str, list[tuple[object, str]]] = {
    "x-message-ttl": [
        (-1, "{value_negative,-1}"),
        (315_360_000_001, "{value_too_large,315360000001}"),
        ("1", '"expected integer, got longstr"'),
        (True, '"expected integer, got bool"'),
    ],
    "x-expires": [(0, "{value_zero,0}"), (-5, "{value_negative,-5}")],
    "x-max-length": [(-1, "{value_negative,-1}"), (1.5, '"expected integer, got double"')],
    "x-max-length-bytes": [(-1, "{value_negative,-1}")],
    "x-max-priority": [(256, "{max_value_exceeded,256}"), (-1, "{value_negative,-1}")],
    "x-overflow": [("burst", "invalid_overflow"), (1, "{unacceptable_type,signedint}")],
    "x-dead-letter-exchange": [(1, "{unacceptable_type,signedint}")],
    "x-dead-letter-routing-key": [("k", "routing_key_but_no_dlx_defined")],
    "x-single-active-consumer": [("yes", "{unacceptable_type,longstr}")],
    "x-queue-version": [(7, "\"unsupported queue version '7'\"")],
    "x-queue-leader-locator": [("moon", "invalid_queue_locator_arg")],
    "x-queue-type": [
        ("lost", "\"unsupported queue type 'lost'\""),
        (1, "{unacceptable_type,signedint}"),
    ],
}


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [(name, value, text) for name, cases in WRONG.items() for value, text in cases],
)
def test_what_is_wrong(name: str, value: object, text: str) -> None:
    with pytest.raises(InvalidQueue) as caught:
        parse({name: value})
    assert str(caught.value) == f"invalid arg '{name}' for queue 'q' in vhost '/': {text}"


@pytest.mark.parametrize("age", ["0D", "7", "D", "7X", "-1D", " 7D", 7])
def test_a_stream_s_age(age: object) -> None:
    with pytest.raises(InvalidQueue, match="x-max-age"):
        parse({"x-queue-type": "stream", "x-max-age": age}, durable=True)


@pytest.mark.parametrize(
    ("kind", "name"),
    [("classic", "x-delivery-limit"), ("quorum", "x-max-priority"), ("stream", "x-expires")],
)
def test_an_argument_of_another_type(kind: str, name: str) -> None:
    with pytest.raises(InvalidQueue) as caught:
        parse({"x-queue-type": kind, name: 3}, durable=True)
    where = "queue 'q' in vhost '/'"
    assert str(caught.value) == (
        f"invalid arg '{name}' for {where} of queue type rabbit_{kind}_queue"
    )


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"durable": False}, "non-durable"),
        ({"durable": True, "exclusive": True}, "exclusive-owner"),
        ({"durable": True, "auto_delete": True}, "auto-delete"),
    ],
)
def test_a_quorum_queue_lasts(fields: dict[str, bool], text: str) -> None:
    with pytest.raises(InvalidQueue) as caught:
        parse({"x-queue-type": "quorum"}, **fields)
    assert str(caught.value) == f"invalid property '{text}' for queue 'q' in vhost '/'"


def test_declared_again() -> None:
    for current, wanted in (
        (declared({"x-message-ttl": 1}), declared({"x-message-ttl": 1})),
        (declared(), declared({"x-queue-type": "classic"})),
        (declared({"x-of-somebody": 1}), declared({"x-of-somebody": 2})),
    ):
        wanted.check_same(current.spec())


@pytest.mark.parametrize(
    ("current", "wanted", "text"),
    [
        (
            declared(),
            declared(durable=False),
            "arg 'durable' {}: received 'false' but current is 'true'",
        ),
        (
            declared(),
            declared(auto_delete=True),
            "arg 'auto_delete' {}: received 'true' but current is 'false'",
        ),
        (
            declared({"x-message-ttl": 1}),
            declared({"x-message-ttl": 2}),
            "arg 'x-message-ttl' {}: received '2' but current is '1'",
        ),
        (
            declared({"x-message-ttl": 1}),
            declared(),
            "arg 'x-message-ttl' {}: received none but current is the value '1' of type"
            " 'signedint'",
        ),
        (
            declared(),
            declared({"x-dead-letter-exchange": "x"}),
            "arg 'x-dead-letter-exchange' {}: received the value 'x' of type 'longstr' but current"
            " is none",
        ),
        (
            declared({"x-queue-type": "quorum"}),
            declared(),
            "arg 'x-queue-type' {}: received 'classic' but current is 'quorum'",
        ),
    ],
)
def test_declared_otherwise(current: QueueDeclaration, wanted: QueueDeclaration, text: str) -> None:
    with pytest.raises(QueueMismatch) as caught:
        wanted.check_same(current.spec())
    assert str(caught.value) == "inequivalent " + text.format("for queue 'q' in vhost '/'")
