"""RabbitMQ's three permissions, and its error texts for a missing one."""

from __future__ import annotations

from entrepot.broker.access import Operation, ResourceKind

DEFAULT_EXCHANGE_NAME = "amq.default"  # Stands for the default exchange, whose name is empty.

# Any of the three permits DESCRIBE; the error text names the first one.
_RIGHTS = {
    Operation.CREATE: "configure",
    Operation.DELETE: "configure",
    Operation.DESCRIBE: "configure",
    Operation.WRITE: "write",
    Operation.READ: "read",
}


def refusal(operation: Operation, kind: ResourceKind, name: str, vhost: str, user: str) -> str:
    """Return the error text for an operation that is not permitted."""
    return (
        f"{_RIGHTS[operation]} access to {kind.value} '{name or DEFAULT_EXCHANGE_NAME}' "
        f"in vhost '{vhost}' refused for user '{user}'"
    )


def vhost_refusal(vhost: str, user: str) -> str:
    """Return the error text for a virtual host that the user may not enter."""
    return f"access to vhost '{vhost}' refused for user '{user}'"
