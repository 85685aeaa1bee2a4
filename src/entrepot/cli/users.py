"""`entrepot users`: who there is, and their passwords.

Usually through a running broker. With --data-dir, in the directory of a broker that is
stopped: how the first user comes to be, when nobody can log in yet.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

import click

from entrepot.cli.management import connect, management_options
from entrepot.cli.security import read_password
from entrepot.cli.talk import bootstrap_option, json_option, show_json, show_table, talk

if TYPE_CHECKING:
    from entrepot.broker.broker import Broker
    from entrepot.client.client import Client

_Result = TypeVar("_Result")

_data_dir_option = click.option(
    "--data-dir", metavar="DIR", help="In this directory, of a broker that is stopped."
)


@click.group()
def users() -> None:
    """Add, list and delete users, and change their passwords."""


@users.command()
@click.argument("name")
@_data_dir_option
@bootstrap_option
def add(name: str, data_dir: str | None, bootstrap: str) -> None:
    """Add a user; the password is asked for."""
    _set_password(name, data_dir, bootstrap, is_new=True)
    click.echo(f"added {name}")


@users.command()
@click.argument("name")
@_data_dir_option
@bootstrap_option
def passwd(name: str, data_dir: str | None, bootstrap: str) -> None:
    """Give a user a new password. Who is connected stays connected."""
    _set_password(name, data_dir, bootstrap, is_new=False)
    click.echo(f"changed the password of {name}")


@users.command("list")
@json_option
@_data_dir_option
@bootstrap_option
def list_(as_json: bool, data_dir: str | None, bootstrap: str) -> None:
    """List users, and what they can log in with."""
    found = _all(data_dir, bootstrap)
    if as_json:
        show_json({"name": name, "mechanisms": each} for name, each in found.items())
    else:
        show_table({"name": name, "mechanisms": " ".join(each)} for name, each in found.items())


@users.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@_data_dir_option
@bootstrap_option
def delete(names: tuple[str, ...], data_dir: str | None, bootstrap: str) -> None:
    """Delete users. Who is connected stays connected."""
    from entrepot.broker.users import user_deleted_record

    async def here(broker: "Broker") -> None:
        for name in names:
            _check_known(name, broker.users.names(), is_new=False)
        await broker.change_security(*map(user_deleted_record, names))

    async def there(client: "Client") -> None:
        from entrepot.client.users import UserAdmin

        admin = UserAdmin(client)
        known = await admin.all()
        for name in names:
            _check_known(name, known, is_new=False)
            await admin.delete(name, known[name])

    if data_dir is not None:
        _offline(data_dir, here)
    else:
        talk(bootstrap, there)
    for name in names:
        click.echo(f"deleted {name}")


@users.command("add-key")
@click.argument("name")
@json_option
@_data_dir_option
@management_options
def add_key(name: str, as_json: bool, data_dir: str | None) -> None:
    """Make an access key, for clients of AWS. Its secret is shown only now."""
    from entrepot.broker.access_keys import key_record

    async def here(broker: "Broker") -> dict[str, str]:
        key = broker.users.new_key(name)
        await broker.change_security(key_record(key))
        return {"id": key.id, "secret": key.secret}

    key = connect().post("users", name, "keys") if data_dir is None else _offline(data_dir, here)
    if as_json:
        show_json([key])
    else:
        click.echo(f"aws_access_key_id = {key['id']}\naws_secret_access_key = {key['secret']}")


@users.command("list-keys")
@click.argument("name")
@json_option
@_data_dir_option
@management_options
def list_keys(name: str, as_json: bool, data_dir: str | None) -> None:
    """List the ids of a user's access keys."""

    async def here(broker: "Broker") -> list[dict[str, str]]:
        _check_known(name, broker.users.names(), is_new=False)
        return [{"id": key.id} for key in broker.users.keys.of(name)]

    rows = connect().get("users", name, "keys") if data_dir is None else _offline(data_dir, here)
    (show_json if as_json else show_table)(rows)


@users.command("delete-key")
@click.argument("name")
@click.argument("key_id", metavar="ID")
@_data_dir_option
@management_options
def delete_key(name: str, key_id: str, data_dir: str | None) -> None:
    """Delete an access key. Requests that are signed with it are refused from then on."""
    from entrepot.broker.access_keys import key_deleted_record

    async def here(broker: "Broker") -> None:
        if key_id not in [key.id for key in broker.users.keys.of(name)]:
            raise click.ClickException(f"{name} has no access key {key_id}")
        await broker.change_security(key_deleted_record(key_id))

    if data_dir is None:
        connect().delete("users", name, "keys", key_id)
    else:
        _offline(data_dir, here)
    click.echo(f"deleted {key_id}")


def _set_password(name: str, data_dir: str | None, bootstrap: str, *, is_new: bool) -> None:
    async def here(broker: "Broker") -> None:
        from entrepot.broker.users import user_record

        _check_known(name, broker.users.names(), is_new=is_new)
        password = read_password(f"New password of {name}", is_new=True)
        await broker.change_security(user_record(await broker.users.with_password(name, password)))

    async def there(client: "Client") -> None:
        from entrepot.client.users import UserAdmin

        admin = UserAdmin(client)
        _check_known(name, await admin.all(), is_new=is_new)
        await admin.set_password(name, read_password(f"New password of {name}", is_new=True))

    if data_dir is not None:
        _offline(data_dir, here)
    else:
        talk(bootstrap, there)


def _check_known(name: str, known: Iterable[str], *, is_new: bool) -> None:
    is_known = name in list(known)
    if is_new and is_known:
        raise click.ClickException(f"there is a user {name} already; passwd changes the password")
    if not is_new and not is_known:
        raise click.ClickException(f"there is no user {name}")


def _all(data_dir: str | None, bootstrap: str) -> dict[str, list[str]]:
    async def here(broker: "Broker") -> dict[str, list[str]]:
        found = {}
        for name in broker.users.names():
            user = broker.users.get(name)
            assert user is not None
            found[name] = [mechanism.value for mechanism in user.verifiers]
        return found

    async def there(client: "Client") -> dict[str, list[str]]:
        from entrepot.client.users import UserAdmin

        found = await UserAdmin(client).all()
        return {name: [m.value for m in mechanisms] for name, mechanisms in found.items()}

    return _offline(data_dir, here) if data_dir is not None else talk(bootstrap, there)


def _offline(data_dir: str, work: "Callable[[Broker], Awaitable[_Result]]") -> _Result:
    """Open the directory as a broker would, so that no other can, and do the work."""
    from entrepot.broker.broker import Broker
    from entrepot.core.clock import SystemClock, SystemEntropy
    from entrepot.core.errors import PeerError, StorageError
    from entrepot.gateway.rabbitmq.exchange_arguments import PREDECLARED
    from entrepot.log.disk import FileDisk

    async def run(disk: FileDisk) -> _Result:
        broker = Broker(disk, SystemClock(), SystemEntropy(), predeclared=PREDECLARED)
        await broker.open()
        try:
            return await work(broker)
        finally:
            await broker.close()

    try:
        with contextlib.closing(FileDisk(data_dir)) as disk:
            return asyncio.run(run(disk))
    except BlockingIOError:
        raise click.ClickException(
            f"{data_dir}: a broker is using it; leave out --data-dir to ask that broker"
        ) from None
    except OSError as error:
        raise click.ClickException(f"{data_dir}: {error.strerror}") from None
    except (PeerError, StorageError) as error:
        raise click.ClickException(str(error)) from None
