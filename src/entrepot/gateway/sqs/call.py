"""One call of an action: its parameters, who asks, and what actions need of the broker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from entrepot.broker.access import Operation, Principal, ResourceKind
from entrepot.broker.broker import Broker
from entrepot.broker.login import LoginPolicy
from entrepot.broker.queue.queue import Queue
from entrepot.broker.virtual_host.virtual_host import VirtualHost
from entrepot.core.measures import MessageCount
from entrepot.core.ports import Clock
from entrepot.gateway.sqs.login import region_of
from entrepot.gateway.sqs.move_tasks import MoveTasks
from entrepot.wire.http.request import Request
from entrepot.wire.sqs.errors import SqsError
from entrepot.wire.sqs.parameters import Parameters

if TYPE_CHECKING:
    from entrepot.gateway.sqs.sns.endpoints import Endpoints

Result = dict[str, Any] | None  # As JSON has it. None means: nothing but that it is done.

# Actions that a permission of a queue may allow. Each allows the batches of the same, too.
GRANTABLE = (
    "SendMessage",
    "ReceiveMessage",
    "DeleteMessage",
    "ChangeMessageVisibility",
    "GetQueueAttributes",
    "GetQueueUrl",
)
_SEQUENCE_FIRST = 10**19
ACCOUNT = "000000000000"  # There are no accounts; URLs and ARNs have room for one.


@dataclass(frozen=True, slots=True)
class Context:
    """What all calls use. One for all connections of an endpoint."""

    broker: Broker
    clock: Clock
    login: LoginPolicy
    messages: MessageCount
    purged_ms: dict[Queue, int] = field(default_factory=dict)  # When each was purged last.
    moves: MoveTasks = field(default_factory=MoveTasks)
    # Filter policies as they were read, with the subscription that has it, by its id.
    policies: dict[str, tuple[object, object]] = field(default_factory=dict)
    endpoints: Endpoints | None = None  # Where SNS may send requests. None means: nowhere.
    sequences: list[int] = field(default_factory=lambda: [0])  # The last number that was given.

    def next_sequence(self, now_ms: int) -> str:
        """Return a sequence number: twenty digits, larger than all before."""
        number = max(self.sequences[0] + 1, _SEQUENCE_FIRST + now_ms * 100_000)
        self.sequences[0] = number
        return str(number)


@dataclass(frozen=True, slots=True)
class Call:
    context: Context
    principal: Principal
    parameters: Parameters
    request: Request
    action: str

    @property
    def broker(self) -> Broker:
        return self.context.broker

    @property
    def vhost(self) -> VirtualHost:
        return self.broker.vhosts.default

    @property
    def base_url(self) -> str:
        """Return what URLs of queues begin with, as the client addressed the broker."""
        return f"http://{self.request.headers.get('host', 'localhost')}"

    @property
    def region(self) -> str:
        return region_of(self.request)

    # --- queues

    @property
    def queue_name(self) -> str:
        """Return the name of the queue that the parameter QueueUrl leads to."""
        return unquote(self.parameters.text("QueueUrl").rstrip("/").rpartition("/")[2])

    def queue(self, operation: Operation) -> Queue:
        """Return the queue of the call, to which the user must have that right."""
        name = self.queue_name
        self.require(operation, name)
        return self.find(name)

    def find(self, name: str) -> Queue:
        found = self.vhost.queues.get(name)
        if found is None or found.owner is not None:
            raise unknown_queue()
        return found

    def require(self, operation: Operation, name: str) -> None:
        """Raise SqsError if the user has no such right to the queue of that name."""
        vhost = self.vhost.name
        may = self.principal.may(operation, ResourceKind.QUEUE, name, vhost)
        if not (may and self.principal.may_enter(vhost)) and not self._is_granted(name):
            text = f"Access to the resource {self.url(name)} is denied."
            raise SqsError("AccessDenied", text)

    def _is_granted(self, name: str) -> bool:
        """Return whether a permission of the queue allows the user this action."""
        queue = self.vhost.queues.get(name)
        action, user = self.action.removesuffix("Batch"), self.principal.user
        return queue is not None and any(
            user in each.users and action in each.actions for each in queue.settings.grants
        )

    def url(self, name: str) -> str:
        return f"{self.base_url}/{ACCOUNT}/{quote(name, safe='', errors='surrogateescape')}"

    def arn(self, name: str) -> str:
        return f"arn:aws:sqs:{self.region}:{ACCOUNT}:{name}"


def unknown_queue() -> SqsError:
    return SqsError("QueueDoesNotExist", "The specified queue does not exist.")
