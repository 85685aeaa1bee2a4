"""What RabbitMQ says to those who may not."""

import pytest

from entrepot.broker.access import Operation, ResourceKind
from entrepot.gateway.rabbitmq.rights import refusal, vhost_refusal


@pytest.mark.parametrize(
    ("operation", "right"),
    [
        (Operation.CREATE, "configure"),
        (Operation.DELETE, "configure"),
        (Operation.DESCRIBE, "configure"),
        (Operation.WRITE, "write"),
        (Operation.READ, "read"),
    ],
)
def test_each_operation_is_one_of_three_rights(operation: Operation, right: str) -> None:
    said = refusal(operation, ResourceKind.QUEUE, "work", "/", "ana")
    assert said == f"{right} access to queue 'work' in vhost '/' refused for user 'ana'"


def test_the_default_exchange_has_a_name() -> None:
    said = refusal(Operation.WRITE, ResourceKind.EXCHANGE, "", "shop", "ana")
    assert said == ("write access to exchange 'amq.default' in vhost 'shop' refused for user 'ana'")


def test_a_virtual_host() -> None:
    assert vhost_refusal("shop", "ana") == "access to vhost 'shop' refused for user 'ana'"
