"""Azure Service Bus's own client for Python, with the address of its emulator."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from entrepot.testing import Broker, broker

servicebus = pytest.importorskip(
    "azure.servicebus", reason="pip install azure-servicebus for these tests"
)
from azure.servicebus.exceptions import ServiceBusError  # noqa: E402

WAIT_S = 20


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker() as started:
        yield started
        assert "Traceback" not in started.log_path.read_text()


@pytest.fixture
def client(server: Broker) -> Iterator[Any]:
    with connect(server) as opened:
        yield opened


def connect(server: Broker) -> Any:
    host, port = server.endpoints["amqp"]
    text = (
        f"Endpoint=sb://{host}:{port};SharedAccessKeyName=RootManageSharedAccessKey;"
        "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
    )
    return servicebus.ServiceBusClient.from_connection_string(text, retry_total=0)


def send(client: Any, queue: str, *bodies: str) -> None:
    """As one batch if there are several."""
    messages = [servicebus.ServiceBusMessage(body) for body in bodies]
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(messages if len(messages) > 1 else messages[0], timeout=WAIT_S)


def receive(receiver: Any, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        more = receiver.receive_messages(count - len(found), max_wait_time=WAIT_S)
        assert more, [str(each) for each in found]
        found += more
    return found


def test_messages_are_sent_locked_and_settled(client: Any) -> None:
    with client.get_queue_sender("orders") as sender:
        message = servicebus.ServiceBusMessage(
            "one",
            application_properties={"colour": "red", "weight": 7},
            message_id="m-1",
            subject="shirts",
            content_type="text/plain",
            correlation_id="c-1",
        )
        sender.send_messages(message)
    with client.get_queue_receiver("orders") as receiver:
        (found,) = receive(receiver, 1)
        assert (str(found), found.message_id, found.subject) == ("one", "m-1", "shirts")
        assert found.application_properties == {b"colour": b"red", b"weight": 7}
        assert (found.content_type, found.correlation_id) == ("text/plain", "c-1")
        assert (found.sequence_number, found.delivery_count) == (1, 0)
        assert found.enqueued_time_utc is not None
        receiver.renew_message_lock(found)
        receiver.abandon_message(found)
        (again,) = receive(receiver, 1)
        assert (str(again), again.delivery_count) == ("one", 1)
        assert again.lock_token != found.lock_token
        receiver.complete_message(again)
        assert not receiver.receive_messages(1, max_wait_time=1)


def test_a_batch_is_several_messages(client: Any) -> None:
    send(client, "batch", *[f"{number}" for number in range(200)])
    with client.get_queue_receiver("batch") as receiver:
        found = receive(receiver, 200)
        assert [str(each) for each in found] == [str(number) for number in range(200)]
        for each in found:
            receiver.complete_message(each)


def test_dead_letters(client: Any) -> None:
    """A message that is given up, and one that was given back ten times."""
    send(client, "poison", "bad", "worse")
    with client.get_queue_receiver("poison") as receiver:
        bad, worse = receive(receiver, 2)
        receiver.dead_letter_message(bad, reason="unreadable", error_description="no JSON")
        for _ in range(9):
            receiver.abandon_message(worse)
            (worse,) = receive(receiver, 1)
        receiver.abandon_message(worse)
    with client.get_queue_receiver(
        "poison",
        sub_queue=servicebus.ServiceBusSubQueue.DEAD_LETTER,
        receive_mode=servicebus.ServiceBusReceiveMode.RECEIVE_AND_DELETE,
    ) as receiver:
        assert sorted(str(each) for each in receive(receiver, 2)) == ["bad", "worse"]
        assert not receiver.receive_messages(1, max_wait_time=1)


def test_what_a_receiver_leaves_comes_back_after_kill_9(server: Broker) -> None:
    with connect(server) as client:
        send(client, "kept", "a", "b", "c")
        with client.get_queue_receiver("kept") as receiver:
            first, *_ = receive(receiver, 3)
            receiver.complete_message(first)
    server.kill()
    server.start()
    with connect(server) as client, client.get_queue_receiver("kept") as receiver:
        found = receive(receiver, 2)
        assert [str(each) for each in found] == ["b", "c"]
        for each in found:
            receiver.complete_message(each)


def test_what_is_not_supported_is_refused(client: Any) -> None:
    with client.get_queue_sender("refused") as sender:
        later = datetime.now(UTC) + timedelta(minutes=1)
        with pytest.raises(ServiceBusError, match="schedule-message is not supported"):
            sender.schedule_messages(servicebus.ServiceBusMessage("x"), later)
        message = servicebus.ServiceBusMessage("x", scheduled_enqueue_time_utc=later)
        with pytest.raises(ServiceBusError, match="not scheduled"):
            sender.send_messages(message)
    with (
        client.get_queue_receiver("refused") as receiver,
        pytest.raises(ServiceBusError, match="peek-message is not supported"),
    ):
        receiver.peek_messages()
    with (
        pytest.raises(ServiceBusError, match="session-filter is not supported"),
        client.get_queue_receiver("refused", session_id="s") as receiver,
    ):
        receiver.receive_messages(max_wait_time=1)
    with (
        pytest.raises(ServiceBusError, match="subscriptions of Service Bus are not supported"),
        client.get_subscription_receiver("topic", "mine") as receiver,
    ):
        receiver.receive_messages(max_wait_time=1)


def test_a_broker_that_asks_for_passwords_refuses_it() -> None:
    with (
        broker(settings={"security.authentication": "sasl"}) as started,
        connect(started) as client,
        pytest.raises(ServiceBusError),
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(servicebus.ServiceBusMessage("x"))
