"""Methods against the specification's bytes, and what is wrong with damaged ones."""

import pytest

from entrepot.wire.amqp.errors import AmqpError
from entrepot.wire.amqp.methods import (
    METHODS,
    access,
    basic,
    channel,
    confirm,
    connection,
    decode,
    encode,
    exchange,
    queue,
    tx,
)

SAMPLES = [
    (tx.Commit(), "005a0014"),
    (confirm.Select(nowait=True), "0055000a01"),
    (channel.Flow(active=False), "0014001400"),
    (connection.Tune(2047, 131072, 60), "000a001e07ff00020000003c"),
    (connection.UpdateSecret(b"s", "why"), "000a0046000000017303776879"),
    (connection.Blocked("low on disk"), "000a003c0b6c6f77206f6e206469736b"),
    (basic.Nack(5, multiple=True, requeue=False), "003c0078000000000000000501"),
    (basic.Nack(5, multiple=False, requeue=True), "003c0078000000000000000502"),
    (exchange.UnbindOk(), "00280033"),
    (
        queue.Declare(0, "q", False, True, True, False, True, {"x-expires": 1}),
        "0032000a000001711600000" + "00f09782d657870697265734900000001",
    ),
    (access.Request("/data", True, False, True, False, True), "001e000a052f6461746115"),
]


@pytest.mark.parametrize(("method", "data"), SAMPLES)
def test_a_method_is_these_bytes(method: object, data: str) -> None:
    assert encode(method).hex() == data
    assert decode(bytes.fromhex(data)) == method


def test_the_catalogue_is_whole() -> None:
    """As many as RabbitMQ knows, without those of its credit extension, which is gone."""
    counts: dict[int, int] = {}
    for class_id, _ in METHODS:
        counts[class_id] = counts.get(class_id, 0) + 1
    assert counts == {10: 14, 20: 6, 30: 2, 40: 8, 50: 10, 60: 18, 85: 2, 90: 6}
    assert len({kind.NAME for kind in METHODS.values()}) == len(METHODS)
    assert [kind.NAME for kind in METHODS.values() if kind.HAS_CONTENT] == [
        "basic.publish",
        "basic.return",
        "basic.deliver",
        "basic.get-ok",
    ]


def test_every_method_can_be_left_at_its_defaults() -> None:
    for kind in METHODS.values():
        method = kind()
        assert decode(encode(method)) == method
        assert type(decode(encode(method))) is kind


def test_methods_are_not_equal_across_classes() -> None:
    assert queue.BindOk() != exchange.BindOk()


def test_unknown_methods_are_not_implemented() -> None:
    for payload in (b"\0\x3c\x03\xe7", b"\x03\xe7\0\x0a", b"\0\x3c\0\xc8"):
        with pytest.raises(AmqpError, match="NOT_IMPLEMENTED - there is no method") as caught:
            decode(payload)
        assert caught.value.code == 540
        assert caught.value.closes_connection


def test_a_frame_holds_its_fields_and_nothing_else() -> None:
    for kind in METHODS.values():
        whole = encode(kind())
        for payload in (*(whole[:size] for size in range(len(whole))), whole + b"\0"):
            with pytest.raises(AmqpError) as caught:
                decode(payload)
            assert caught.value.code == 501
            assert caught.value.method_id in (kind.ID, (0, 0))


def test_the_error_names_the_method() -> None:
    with pytest.raises(AmqpError, match=r"FRAME_ERROR - basic.qos: cannot decode: .* ends"):
        decode(encode(basic.Qos())[:-1])
    with pytest.raises(AmqpError, match="1 bytes after its last field") as caught:
        decode(encode(basic.Qos()) + b"\0")
    assert caught.value.method_id == basic.Qos.ID


def test_names_are_utf_8_and_what_is_passed_on_may_be_anything() -> None:
    with pytest.raises(AmqpError, match="not UTF-8") as caught:
        decode(b"\0\x32\0\x0a\0\0\x01\xff\0\0\0\0\0")
    assert caught.value.code == 501
    publish = b"\0\x3c\0\x28\0\0\x01e\x02\xff\xfe\0"
    method = decode(publish)
    assert method == basic.Publish(0, "e", "\udcff\udcfe")
    assert encode(method) == publish


def test_a_damaged_table_is_a_syntax_error_of_its_method() -> None:
    payload = encode(queue.Declare(queue="q"))[:-4] + b"\0\0\0\x03\x01nZ"
    with pytest.raises(AmqpError, match=r"SYNTAX_ERROR - queue.declare: .*unknown type") as caught:
        decode(payload)
    assert caught.value.code == 502
    assert caught.value.method_id == queue.Declare.ID
