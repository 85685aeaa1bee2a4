"""Finds the function for a request, and makes an answer of what it returns or raises.

A request is in one of two protocols. In JSON the header `X-Amz-Target` names the action. In the
older one the action is a field of a form, and the answer is XML.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from entrepot.core import errors
from entrepot.core.errors import PeerError, StorageError
from entrepot.core.steps import Steps
from entrepot.gateway.http.adapter import AtOnce
from entrepot.gateway.http.json_reader import NotJson, read_in_steps
from entrepot.gateway.http.json_writer import encoded
from entrepot.gateway.sqs import moving, permissions, queues, receiving, sending
from entrepot.gateway.sqs.call import Call, Context, Result, unknown_queue
from entrepot.gateway.sqs.login import identify, service_of
from entrepot.wire.http.request import HttpError, Request
from entrepot.wire.http.response import Response
from entrepot.wire.sqs import query, sns
from entrepot.wire.sqs.errors import SqsError, malformed
from entrepot.wire.sqs.limits import VALUES_MAX
from entrepot.wire.sqs.parameters import Parameters

TARGET = "AmazonSQS."
_JSON = ("Content-Type", "application/x-amz-json-1.0")
_XML = ("Content-Type", "text/xml")

Action = Callable[[Call], Awaitable[Result]]

ACTIONS: dict[str, Action] = {
    "AddPermission": permissions.add,
    "CancelMessageMoveTask": moving.cancel,
    "ChangeMessageVisibility": receiving.change_visibility,
    "ChangeMessageVisibilityBatch": receiving.change_visibility_batch,
    "CreateQueue": queues.create,
    "DeleteMessage": receiving.delete,
    "DeleteMessageBatch": receiving.delete_batch,
    "DeleteQueue": queues.delete,
    "GetQueueAttributes": queues.get_attributes,
    "GetQueueUrl": queues.find_url,
    "ListDeadLetterSourceQueues": queues.list_sources,
    "ListMessageMoveTasks": moving.list_tasks,
    "ListQueueTags": queues.list_labels,
    "ListQueues": queues.list_all,
    "PurgeQueue": queues.purge,
    "ReceiveMessage": receiving.receive,
    "RemovePermission": permissions.remove,
    "SendMessage": sending.send,
    "SendMessageBatch": sending.send_batch,
    "SetQueueAttributes": queues.set_attributes,
    "StartMessageMoveTask": moving.start,
    "TagQueue": queues.label,
    "UntagQueue": queues.remove_labels,
}
# What programs do all the time. None of it asks other nodes, or waits with a time limit.
_AT_ONCE = frozenset(
    f"{TARGET}{name}"
    for name in (
        "ChangeMessageVisibility",
        "ChangeMessageVisibilityBatch",
        "DeleteMessage",
        "DeleteMessageBatch",
        "ReceiveMessage",
        "SendMessage",
        "SendMessageBatch",
    )
)
# Whoever got the token may do it, without a login; the action asks for no other right.
_PROVEN_BY_TOKEN = ("ConfirmSubscription",)


class Sqs:
    """Answers requests. Errors of the client become answers and are not raised."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def __call__(self, request: Request, peer_host: str) -> Awaitable[Response]:
        request_id = str(self._context.broker.new_id())
        target = request.headers.get("x-amz-target")
        if target is None:
            return self._query(request, peer_host, request_id)
        work = self._json(request, peer_host, target, request_id)
        return AtOnce(work) if target in _AT_ONCE else work

    async def _json(
        self, request: Request, peer_host: str, target: str, request_id: str
    ) -> Response:
        turns = self._context.broker.turns
        identity = ("x-amzn-RequestId", request_id)
        try:
            reading = turns.begin(_read_json(request.body))
            values = reading if isinstance(reading, dict) else await reading
            action = target.removeprefix(TARGET)
            if action == target:
                action = ""
            result = await self._call(request, peer_host, action, Parameters(values))
        except SqsError as error:
            body = msgspec.json.encode({"__type": error.type, "message": _shown(str(error))})
            kind = "Sender" if error.is_senders else "Receiver"
            code = ("x-amzn-query-error", f"{error.code};{kind}")
            return Response(error.status, body, (_JSON, identity, code))
        if result is None:
            return Response(200, b"", (_JSON, identity))
        writing = turns.begin(encoded(result))
        written = writing if isinstance(writing, bytearray) else await writing
        return Response(200, written, (_JSON, identity))

    async def _query(self, request: Request, peer_host: str, request_id: str) -> Response:
        turns = self._context.broker.turns
        try:
            path, _, in_target = request.target.partition("?")
            form = b"&".join((in_target.encode("latin-1"), request.body))
            fields = await turns.run(query.read_form(form))
            action = fields.pop("Action", "")
            service = service_of(request)
            is_sns = fields.get("Version") == sns.VERSION or service == "sns"
            if is_sns or (not service and action in sns.IN_MESSAGES):
                return await self._sns(request, peer_host, action, fields, request_id)
            values = query.structure(fields)
            values.setdefault("QueueUrl", path)
            parameters = Parameters(values, are_texts=True)
            result = await self._call(request, peer_host, action, parameters)
        except SqsError as error:
            return Response(error.status, query.failure(error, request_id), (_XML,))
        return Response(200, await turns.run(query.answer(action, result, request_id)), (_XML,))

    async def _sns(
        self,
        request: Request,
        peer_host: str,
        action: str,
        fields: Mapping[str, str],
        request_id: str,
    ) -> Response:
        from entrepot.gateway.sqs.sns.application import ACTIONS as SNS_ACTIONS

        try:
            if self._context.broker.cluster is not None:
                raise SqsError("InvalidAction", "topics of SNS are not served in a cluster, so far")
            parameters = Parameters(sns.structure(fields), are_texts=True)
            result = await self._call(request, peer_host, action, parameters, SNS_ACTIONS)
        except SqsError as error:
            return Response(error.status, sns.failure(error, request_id), (_XML,))
        turns = self._context.broker.turns
        return Response(200, await turns.run(sns.answer(action, result, request_id)), (_XML,))

    async def _call(
        self,
        request: Request,
        peer_host: str,
        action: str,
        parameters: Parameters,
        actions: Mapping[str, Action] = ACTIONS,
    ) -> Result:
        """Call the action. Raises SqsError, whatever went wrong that is to be told."""
        context = self._context
        if action in _PROVEN_BY_TOKEN and "authorization" not in request.headers:
            principal = context.login.identify(None, peer_host)
        else:
            principal = await identify(
                context.login, request, peer_host, context.broker.turns, context.clock.now_ms()
            )
        function = actions.get(action)
        if function is None:
            raise SqsError("InvalidAction", f"There is no action {action[:100]!r}.")
        call = Call(context, principal, parameters, request, action)
        try:
            return await function(call)
        except errors.UnknownQueue:
            raise unknown_queue() from None
        except StorageError as error:
            raise SqsError("ServiceUnavailable", str(error)) from None
        except HttpError:
            raise
        except SqsError:
            raise
        except PeerError as error:
            raise SqsError("UnsupportedOperation", str(error)) from None


def _read_json(body: bytes) -> Steps[dict[str, Any]]:
    try:
        values = (yield from read_in_steps(body, VALUES_MAX)) if body.strip() else {}
    except NotJson:
        raise malformed("The request is not JSON, or too much of it.") from None
    if not isinstance(values, dict):
        raise malformed("The request is not a JSON object.")
    return values


def _shown(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
