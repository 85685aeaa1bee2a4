"""Virtual hosts, and the permissions of users in them."""

from __future__ import annotations

from typing import Any

from entrepot.broker.permissions import (
    Permission,
    permission_deleted_record,
    permission_record,
)
from entrepot.broker.virtual_host.virtual_host import VirtualHost
from entrepot.gateway.http.management.call import Call
from entrepot.gateway.http.management.fields import bad
from entrepot.gateway.http.management.queues import message_counts
from entrepot.wire.http.request import HttpError
from entrepot.wire.http.response import NO_CONTENT, Response

Row = dict[str, Any]

_EVERYTHING = Permission(".*", ".*", ".*")


async def list_all(call: Call) -> list[Row]:
    return [await describe(call, vhost) for vhost in call.vhosts]


async def show(call: Call) -> Row:
    return await describe(call, call.vhost)


async def describe(call: Call, vhost: VirtualHost) -> Row:
    ready, unacked = await message_counts(call, list(vhost.queues.values()))
    return {
        "name": vhost.name,
        "description": "",
        "tags": [],
        "metadata": {"description": "", "tags": []},
        "tracing": False,
        "cluster_state": {call.context.node: "running"},
        "messages": ready + unacked,
        "messages_ready": ready,
        "messages_unacknowledged": unacked,
    }


async def create(call: Call) -> Response:
    call.require_administrator()
    name = call.path["vhost"]
    is_there = name in call.broker.vhosts.names
    await call.broker.vhosts.create(name)
    return Response(NO_CONTENT if is_there else 201)


async def delete(call: Call) -> None:
    call.require_administrator()
    await call.broker.vhosts.delete(call.path["vhost"])


# Permissions.


def list_permissions(call: Call) -> list[Row]:
    call.require_administrator()
    vhost = call.vhost.name if "vhost" in call.path else None
    user = call.path.get("user")
    if user is not None:
        check_user(call, user)
    return [
        row
        for row in _entries(call)
        if vhost in (None, row["vhost"]) and user in (None, row["user"])
    ]


def show_permission(call: Call) -> Row:
    call.require_administrator()
    for row in _entries(call):
        if (row["vhost"], row["user"]) == (call.path["vhost"], call.path["user"]):
            return row
    raise HttpError(404, "Not Found")


def _entries(call: Call) -> list[Row]:
    found, guest = dict(call.broker.permissions.entries), call.context.login.guest
    if guest is not None:
        for vhost in call.broker.vhosts.names:
            found.setdefault((guest, vhost), _EVERYTHING)
    return [
        {"user": user, "vhost": vhost, **permission._asdict()}
        for (user, vhost), permission in found.items()
    ]


async def set_permission(call: Call) -> Response:
    call.require_administrator()
    fields, user, vhost = call.fields, call.path["user"], call.vhost.name
    fields.require("configure", "write", "read")
    check_user(call, user)
    permission = Permission(fields.text("configure"), fields.text("write"), fields.text("read"))
    is_there = (user, vhost) in call.broker.permissions.entries
    await call.broker.change_security(permission_record(user, vhost, permission))
    return Response(NO_CONTENT if is_there else 201)


async def clear_permission(call: Call) -> None:
    call.require_administrator()
    user, vhost = call.path["user"], call.path["vhost"]
    if (user, vhost) not in call.broker.permissions.entries:
        raise HttpError(404, "Not Found")
    await call.broker.change_security(permission_deleted_record(user, vhost))


def check_user(call: Call, user: str) -> None:
    """Raise HttpError if there is no such user."""
    if call.broker.users.get(user) is None and user != call.context.login.guest:
        raise bad("vhost_or_user_not_found")
