"""What clients of Azure Service Bus say beside AMQP 1.0, byte by byte, and mistakes in it."""

from collections.abc import Iterator

import pytest

from entrepot.testing import Broker, broker
from entrepot.wire.amqp10 import frames
from entrepot.wire.amqp10.frames import frame
from entrepot.wire.amqp10.performatives import (
    Accepted,
    Attach,
    Detach,
    Disposition,
    Flow,
    Source,
    Target,
    Transfer,
)
from tests.end_to_end.test_amqp10 import Bare


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker() as started:
        yield started
        assert "Traceback" not in started.log_path.read_text()


BATCH = 0x80013700
PUT_TOKEN = b"\0\x53\x74\xc1\x17\x02\xa1\x09operation\xa1\x09put-token\0\x53\x77\xa1\x05token"
REQUEST = b"\0\x53\x74\xc1\x12\x02\xa1\x09operation\xa1\x04read\0\x53\x77\x40"


@pytest.mark.parametrize("payload", [PUT_TOKEN, REQUEST])
def test_a_request_without_a_link_for_its_answer_is_accepted(
    server: Broker, payload: bytes
) -> None:
    with Bare(server) as bare:
        bare.send(frame(0, Attach("l", 0, False, target=Target("$cbs"))))
        bare.until(Flow)
        bare.send(frame(0, Transfer(0, 0, b"t"), payload))
        assert isinstance(bare.until(Disposition).state, Accepted)


def test_answers_wait_for_credit_and_are_bounded(server: Broker) -> None:
    with Bare(server) as bare:
        bare.send(frame(0, Attach("answers", 0, True, source=Source("$cbs"))))
        bare.send(frame(0, Attach("requests", 1, False, target=Target("$cbs"))))
        bare.until(Flow)
        bare.send(frame(0, Transfer(1, 0, b"t"), PUT_TOKEN))
        bare.until(Disposition)
        bare.send(frame(0, Flow(0, 100, 1, 100, handle=0, delivery_count=0, link_credit=1)))
        while True:
            event = bare.read()
            if isinstance(event, frames.Transfers):
                break
        ((transfer, payload),) = event.transfers
        assert transfer.settled
        assert b"status-code" in payload
        assert b"Accepted" in payload
        bare.send(*[frame(0, Transfer(1, 1 + n, b"t"), REQUEST) for n in range(101)])
        assert bare.until(Detach).error.condition == "amqp:resource-limit-exceeded"


@pytest.mark.parametrize(
    ("payload", "condition"),
    [
        (b"\0\x53\x75\xa0\x08nonsense", "amqp:decode-error"),
        (b"\0\x53\x77\x40", "amqp:decode-error"),
        (b"\0\x53\x75\xa0\x00", "amqp:decode-error"),
        (b"\0\x53\x75\xa0\x06\0\x53\x75\xa0\x01x\0\x53\x77\x40", "amqp:decode-error"),
    ],
)
def test_batches_that_are_none(server: Broker, payload: bytes, condition: str) -> None:
    with Bare(server) as bare:
        bare.send(frame(0, Attach("l", 0, False, target=Target("hostile"))))
        bare.until(Flow)
        bare.send(frame(0, Transfer(0, 0, b"t", BATCH), payload))
        while True:
            found = bare.read().performative
            if getattr(found, "error", None) is not None:
                break
        assert found.error.condition == condition


@pytest.mark.parametrize(
    ("address", "condition"),
    [
        ("amqps://host", "amqp:invalid-field"),
        ("sb://host/", "amqp:invalid-field"),
        ("amqps://host/topic/Subscriptions/mine", "amqp:not-implemented"),
    ],
)
def test_addresses_of_service_bus_that_are_none(
    server: Broker, address: str, condition: str
) -> None:
    with Bare(server) as bare:
        bare.send(frame(0, Attach("l", 0, True, source=Source(address))))
        assert bare.until(Detach).error.condition == condition
