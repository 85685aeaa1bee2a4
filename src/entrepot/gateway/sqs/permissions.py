"""Permissions of a queue: which users may do what over SQS, beside the rights that they have.

A permission has a label, names of users in the place of Amazon's account ids, and names of
actions. It counts for calls of SQS only; rights of the broker itself are given elsewhere.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from entrepot.broker.access import Operation
from entrepot.broker.queue.settings import Grant, QueueSettings
from entrepot.gateway.sqs.call import GRANTABLE, Call, Result
from entrepot.wire.sqs import limits as sqs_limits
from entrepot.wire.sqs.errors import SqsError, invalid, missing

_LABEL = re.compile(rf"[A-Za-z0-9_-]{{1,{sqs_limits.QUEUE_NAME_MAX}}}")
_EVERYTHING = "*"


async def add(call: Call) -> Result:
    queue = call.queue(Operation.ALTER)
    label = call.parameters.text("Label")
    if not _LABEL.fullmatch(label):
        raise invalid("Label", label, "It has letters, digits, hyphens and underscores.")
    users = tuple(call.parameters.texts("AWSAccountIds"))
    actions = tuple(call.parameters.texts("Actions"))
    for name, given in (("AWSAccountIds", users), ("Actions", actions)):
        if not given:
            raise missing(name)
    if len(actions) > len(GRANTABLE):
        raise SqsError("OverLimit", f"{len(GRANTABLE)} Actions maximum.")
    for action in actions:
        if action not in (*GRANTABLE, _EVERYTHING):
            text = f"Only the queue's owner can do this; others may {', '.join(GRANTABLE)}."
            raise invalid("ActionName", action, text)
    for user in users:
        if call.context.login.asks_users and call.broker.users.get(user) is None:
            raise invalid("PrincipalId", user, "Unable to verify: there is no such user.")
    granted = GRANTABLE if _EVERYTHING in actions else tuple(dict.fromkeys(actions))
    made = Grant(label, tuple(dict.fromkeys(users)), granted)

    def change(settings: QueueSettings) -> QueueSettings:
        if any(each.label == label for each in settings.grants):
            raise invalid("Label", label, "Already exists.")
        grants = (*settings.grants, made)
        if sum(len(each.users) for each in grants) > sqs_limits.GRANTS_MAX:
            raise SqsError("OverLimit", f"A queue has at most {sqs_limits.GRANTS_MAX} of them.")
        return replace(settings, grants=grants, changed_ms=call.context.clock.now_ms())

    await call.vhost.change_queue(queue.name, change)
    return None


async def remove(call: Call) -> Result:
    queue = call.queue(Operation.ALTER)
    label = call.parameters.text("Label")

    def change(settings: QueueSettings) -> QueueSettings:
        grants = tuple(each for each in settings.grants if each.label != label)
        if len(grants) == len(settings.grants):
            raise invalid("Label", label, "can't find label on existing policy.")
        return replace(settings, grants=grants, changed_ms=call.context.clock.now_ms())

    await call.vhost.change_queue(queue.name, change)
    return None
