"""Users, which all protocols share. Password verifiers are never shown.

An access key's secret is shown to who makes the key, and never again.
"""

from __future__ import annotations

from typing import Any

from entrepot.broker.access_keys import key_deleted_record, key_record
from entrepot.broker.permissions import permission_deleted_record
from entrepot.broker.users import user_deleted_record, user_record
from entrepot.core import limits
from entrepot.core.errors import InvalidName
from entrepot.gateway.http.management.call import Call
from entrepot.gateway.http.management.fields import bad
from entrepot.wire.http.request import HttpError
from entrepot.wire.http.response import NO_CONTENT, Response

Row = dict[str, Any]


def who_am_i(call: Call) -> Row:
    return {"name": call.user, "tags": _tags(call, call.user)}


def list_all(call: Call) -> list[Row]:
    call.require_administrator()
    return [describe(call, name) for name in _names(call)]


def show(call: Call) -> Row:
    call.require_administrator()
    return describe(call, _find(call))


def describe(call: Call, name: str) -> Row:
    return {"name": name, "tags": _tags(call, name), "limits": {}}


def _names(call: Call) -> list[str]:
    names, guest = call.broker.users.names(), call.context.login.guest
    return names if guest is None or guest in names else [guest, *names]


def _tags(call: Call, user: str) -> list[str]:
    """Return RabbitMQ's tags for the user, derived from what the user may do."""
    asked = call.broker.access.principal(user, call.principal.host)
    return ["administrator"] if asked.is_administrator else ["management"]


def _find(call: Call) -> str:
    name = call.path["user"]
    if name not in _names(call):
        raise HttpError(404, "Not Found")
    return name


async def put(call: Call) -> Response:
    """Add a user, or set a new password. Tags are accepted and ignored."""
    call.require_administrator()
    name, users = call.path["user"], call.broker.users
    password = call.fields.text("password")
    if not password:
        raise bad("a user needs a password; a hash of one cannot be taken over")
    is_there = users.get(name) is not None
    if not is_there and len(users) >= limits.USERS_MAX:
        raise InvalidName(f"more than {limits.USERS_MAX} users")
    await call.broker.change_security(user_record(await users.with_password(name, password)))
    return Response(NO_CONTENT if is_there else 201)


async def delete(call: Call) -> None:
    """Delete a user and the user's permissions."""
    call.require_administrator()
    name = call.path["user"]
    if call.broker.users.get(name) is None:
        raise HttpError(404, "Not Found")
    entries = [each for each in call.broker.permissions.entries if each[0] == name]
    await call.broker.change_security(
        user_deleted_record(name), *(permission_deleted_record(*entry) for entry in entries)
    )


# --- access keys


def list_keys(call: Call) -> list[Row]:
    call.require_administrator()
    return [{"id": key.id} for key in call.broker.users.keys.of(_stored(call))]


async def add_key(call: Call) -> Row:
    call.require_administrator()
    key = call.broker.users.new_key(_stored(call))
    await call.broker.change_security(key_record(key))
    return {"id": key.id, "secret": key.secret}


async def delete_key(call: Call) -> None:
    call.require_administrator()
    key = call.broker.users.keys.get(call.path["key"])
    if key is None or key.user != _stored(call):
        raise HttpError(404, "Not Found")
    await call.broker.change_security(key_deleted_record(key.id))


def _stored(call: Call) -> str:
    """Return the name in the path, of a user with a password."""
    name = call.path["user"]
    if call.broker.users.get(name) is None:
        raise HttpError(404, "Not Found")
    return name
