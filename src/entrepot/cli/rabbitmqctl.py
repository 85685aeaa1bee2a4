"""`rabbitmqctl`: RabbitMQ's control command, as far as it makes sense for one broker.

It prints what RabbitMQ's prints: a line about what it does, a row of names, and rows with
tabs between, for scripts that cut them apart. Columns are chosen by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from entrepot.cli import background
from entrepot.cli.management import Api, Refused, Unreachable, connect, management_options
from entrepot.cli.security import read_password
from entrepot.config import Config

_Command = TypeVar("_Command", bound=Callable[..., Any])
Row = dict[str, Any]

_COLUMNS = {
    "queues": (
        "name durable auto_delete arguments policy exclusive exclusive_consumer_tag messages_ready"
        " messages_unacknowledged messages messages_deferred consumers state type vhost"
        " single_active_consumer_tag"
    ),
    "exchanges": "name type durable auto_delete internal arguments policy",
    "bindings": ("source_name source_kind destination_name destination_kind routing_key arguments"),
    "connections": (
        "pid name host port peer_host peer_port ssl state channels protocol auth_mechanism user"
        " vhost timeout frame_max channel_max client_properties connected_at"
    ),
    "channels": (
        "pid connection name number user vhost transactional confirm consumer_count"
        " messages_unacknowledged messages_uncommitted acks_uncommitted messages_unconfirmed"
        " prefetch_count global_prefetch_count state"
    ),
    "consumers": (
        "queue_name channel_pid consumer_tag ack_required prefetch_count active arguments"
    ),
    "vhosts": "name tracing",
}


# Failures, with RabbitMQ's exit codes.


class WrongUsage(click.ClickException):
    exit_code = 64


class NoVhost(click.ClickException):
    exit_code = 65


class NoUser(click.ClickException):
    exit_code = 67


class Unavailable(click.ClickException):
    exit_code = 69


class Failed(click.ClickException):
    exit_code = 70


class _Group(click.Group):
    """What the broker refuses becomes an exit code."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except Unreachable as error:
            raise Unavailable(str(error)) from None
        except Refused as refused:
            is_about_vhost = refused.status == 404 and "vhost '" in str(refused)
            raise (NoVhost if is_about_vhost else Failed)(str(refused)) from None


@click.group(cls=_Group)
def rabbitmqctl() -> None:
    """Control a broker: what is in it, who uses it, and whether it runs."""


def _command(command: Callable[..., Any]) -> click.Command:
    """With the options that all have, named after its function."""
    for option in (
        click.option("-q", "--quiet", is_flag=True, help="Rows only, no words about them."),
        click.option("-n", "--node", metavar="NODE", expose_value=False, help="Not looked at."),
        management_options,
    ):
        command = option(command)
    return rabbitmqctl.command(command.__name__)(command)


def _listing(command: _Command) -> _Command:
    for option in (
        click.option("--formatter", type=click.Choice(["table", "json"]), default="table"),
        click.option("--no-table-headers", "hides_names", is_flag=True),
    ):
        command = option(command)
    return command


_vhost_option = click.option("-p", "--vhost", metavar="NAME", default="/", show_default=True)
_columns_argument = click.argument("columns", metavar="[COLUMN]...", nargs=-1)


def _say(quiet: bool, text: str) -> None:
    if not quiet:
        click.echo(text)


# Lists.


def _print(
    rows: Iterable[Row],
    columns: Iterable[str],
    title: str,
    quiet: bool,
    formatter: str,
    hides: bool,
) -> None:
    names = list(columns)
    if formatter == "json":
        click.echo(json.dumps([{name: row.get(name) for name in names} for row in rows]))
        return
    _say(quiet, title)
    if not hides:
        click.echo("\t".join(names))
    for row in rows:
        click.echo("\t".join(_text(row.get(name)) for name in names))


def _chosen(kind: str, columns: tuple[str, ...], default: str) -> list[str]:
    unknown = [name for name in columns if name not in _COLUMNS[kind].split()]
    if unknown:
        raise WrongUsage(f"Info key(s) {', '.join(unknown)} are not supported")
    return list(columns) or default.split()


def _text(value: object) -> str:
    """Names as they are, but on one line; the rest as Erlang writes it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value.replace("\n", "\\n").replace("\r", "\\r")
    return _term(value)


def _term(value: object) -> str:
    if isinstance(value, dict):
        pairs = [f"{{{_term(name)},{_term(each)}}}" for name, each in value.items()]
        return f"[{','.join(pairs)}]"
    if isinstance(value, list):
        return f"[{','.join(map(_term, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)


@_command
@_listing
@_vhost_option
@_columns_argument
def list_queues(
    vhost: str, columns: tuple[str, ...], quiet: bool, formatter: str, hides_names: bool
) -> None:
    """List queues and what is in them."""
    names = _chosen("queues", columns, "name messages")
    rows = connect().get("queues", vhost)
    title = f"Timeout: 60.0 seconds ...\nListing queues for vhost {vhost} ..."
    _print(rows, names, title, quiet, formatter, hides_names)


@_command
@_listing
@_vhost_option
@_columns_argument
def list_exchanges(
    vhost: str, columns: tuple[str, ...], quiet: bool, formatter: str, hides_names: bool
) -> None:
    """List exchanges."""
    names = _chosen("exchanges", columns, "name type")
    rows = connect().get("exchanges", vhost)
    _print(rows, names, f"Listing exchanges for vhost {vhost} ...", quiet, formatter, hides_names)


@_command
@_listing
@_vhost_option
@_columns_argument
def list_bindings(
    vhost: str, columns: tuple[str, ...], quiet: bool, formatter: str, hides_names: bool
) -> None:
    """List bindings, each queue by its name, too."""
    names = _chosen("bindings", columns, _COLUMNS["bindings"])
    rows = [
        row
        | {
            "source_name": row["source"],
            "source_kind": "exchange",
            "destination_name": row["destination"],
            "destination_kind": row["destination_type"],
        }
        for row in connect().get("bindings", vhost)
    ]
    _print(rows, names, f"Listing bindings for vhost {vhost}...", quiet, formatter, hides_names)


@_command
@_listing
@_columns_argument
def list_connections(
    columns: tuple[str, ...], quiet: bool, formatter: str, hides_names: bool
) -> None:
    """List connections."""
    names = _chosen("connections", columns, "user peer_host peer_port state")
    rows = [row | {"pid": f"<{row['name']}>"} for row in connect().get("connections")]
    _print(rows, names, "Listing connections ...", quiet, formatter, hides_names)


@_command
@_listing
@_columns_argument
def list_channels(columns: tuple[str, ...], quiet: bool, formatter: str, hides_names: bool) -> None:
    """List channels, and what they have unacknowledged."""
    names = _chosen("channels", columns, "pid user consumer_count messages_unacknowledged")
    rows = [
        row | {"pid": f"<{row['name']}>", "connection": f"<{row['connection_details']['name']}>"}
        for row in connect().get("channels")
    ]
    _print(rows, names, "Listing channels ...", quiet, formatter, hides_names)


@_command
@_listing
@_vhost_option
def list_consumers(vhost: str, quiet: bool, formatter: str, hides_names: bool) -> None:
    """List consumers."""
    rows = [
        row
        | {
            "queue_name": row["queue"]["name"],
            "channel_pid": f"<{row['channel_details']['name']}>",
        }
        for row in connect().get("consumers", vhost)
    ]
    title = f"Listing consumers in vhost {vhost} ..."
    _print(rows, _COLUMNS["consumers"].split(), title, quiet, formatter, hides_names)


# Virtual hosts, users, permissions.


@_command
@_listing
@_columns_argument
def list_vhosts(columns: tuple[str, ...], quiet: bool, formatter: str, hides_names: bool) -> None:
    """List virtual hosts."""
    names = _chosen("vhosts", columns, "name")
    _print(connect().get("vhosts"), names, "Listing vhosts ...", quiet, formatter, hides_names)


@_command
@click.argument("vhost")
def add_vhost(vhost: str, quiet: bool) -> None:
    """Add a virtual host."""
    _say(quiet, f'Adding vhost "{vhost}" ...')
    connect().put("vhosts", vhost)


@_command
@click.argument("vhost")
def delete_vhost(vhost: str, quiet: bool) -> None:
    """Delete a virtual host with all that is in it."""
    _say(quiet, f'Deleting vhost "{vhost}" ...')
    connect().delete("vhosts", vhost)


@_command
@_listing
def list_users(quiet: bool, formatter: str, hides_names: bool) -> None:
    """List users."""
    rows = [
        {"user": row["name"], "tags": f"[{', '.join(row['tags'])}]"}
        for row in connect().get("users")
    ]
    _print(rows, ["user", "tags"], "Listing users ...", quiet, formatter, hides_names)


def _is_user(api: Api, name: str) -> bool:
    return any(row["name"] == name for row in api.get("users"))


def _check_user(api: Api, name: str) -> None:
    if not _is_user(api, name):
        raise NoUser(f'User "{name}" does not exist')


@_command
@click.argument("name")
@click.argument("password", required=False)
def add_user(name: str, password: str | None, quiet: bool) -> None:
    """Add a user. Without PASSWORD it is asked for, and no other process can read it."""
    _say(quiet, f'Adding user "{name}" ...')
    api = connect()
    if _is_user(api, name):
        raise Failed(f'User "{name}" already exists')
    _set_password(api, name, password)
    _say(quiet, "Done. Don't forget to grant the user permissions to some virtual hosts!")


@_command
@click.argument("name")
@click.argument("password", required=False)
def change_password(name: str, password: str | None, quiet: bool) -> None:
    """Give a user a new password. Without PASSWORD it is asked for."""
    _say(quiet, f'Changing password for user "{name}" ...')
    api = connect()
    _check_user(api, name)
    _set_password(api, name, password)


def _set_password(api: Api, name: str, password: str | None) -> None:
    chosen = password or read_password(f"New password of {name}", is_new=True)
    api.put("users", name, body={"password": chosen, "tags": ""})


@_command
@click.argument("name")
def delete_user(name: str, quiet: bool) -> None:
    """Delete a user."""
    _say(quiet, f'Deleting user "{name}" ...')
    api = connect()
    _check_user(api, name)
    api.delete("users", name)


@_command
@_vhost_option
@click.argument("name", metavar="USER")
@click.argument("configure")
@click.argument("write")
@click.argument("read")
def set_permissions(
    name: str, configure: str, write: str, read: str, vhost: str, quiet: bool
) -> None:
    """Say what a user may do, by regular expressions."""
    _say(quiet, f'Setting permissions for user "{name}" in vhost "{vhost}" ...')
    api = connect()
    _check_user(api, name)
    body = {"configure": configure, "write": write, "read": read}
    api.put("permissions", vhost, name, body=body)


@_command
@_listing
@_vhost_option
def list_permissions(vhost: str, quiet: bool, formatter: str, hides_names: bool) -> None:
    """List what users may do in a virtual host."""
    rows = connect().get("vhosts", vhost, "permissions")
    names = ["user", "configure", "write", "read"]
    title = f'Listing permissions for vhost "{vhost}" ...'
    _print(rows, names, title, quiet, formatter, hides_names)


# The broker.


@_command
def status(quiet: bool) -> None:
    """What the broker is, what it listens on, what is in it."""
    api = connect()
    found, (node, *_) = api.get("overview"), api.get("nodes")
    _say(quiet, f"Status of node {found['node']} ...")
    totals = found["object_totals"]
    sections = {
        "Runtime": [
            f"Uptime (seconds): {node['uptime'] // 1_000}",
            f"Product: {found['product_name']} {found['product_version']}",
            f"RabbitMQ version: {found['rabbitmq_version']}",
            f"Node name: {found['node']}",
            f"Application: {'running' if node['running'] else 'stopped'}",
            f"Internal errors since the start: {found['internal_errors']}",
        ],
        "Alarms": ["(none)"],
        "Totals": [
            f"Connection count: {totals['connections']}",
            f"Channel count: {totals['channels']}",
            f"Consumer count: {totals['consumers']}",
            f"Queue count: {totals['queues']}",
            f"Message count: {found['queue_totals']['messages']}",
            f"Virtual host count: {len(api.get('vhosts'))}",
        ],
        "Listeners": [
            f"Interface: {each['ip_address']}, port: {each['port']}, protocol: {each['protocol']}"
            for each in found["listeners"]
        ],
    }
    _show_sections(sections)


@_command
def cluster_status(quiet: bool) -> None:
    """Which nodes there are, and which of them run."""
    api = connect()
    found, nodes = api.get("overview"), api.get("nodes")
    _say(quiet, f"Cluster status of node {found['node']} ...")
    running = [node["name"] for node in nodes if node["running"]]
    product = f"{found['product_name']} {found['product_version']}"
    sections = {
        "Basics": [f"Cluster name: {found['cluster_name']}"],
        "Disk Nodes": sorted(node["name"] for node in nodes),
        "Running Nodes": sorted(running) or ["(none)"],
        "Versions": [f"{found['node']}: {product}, as RabbitMQ {found['rabbitmq_version']}"],
        "Alarms": ["(none)"],
        "Network Partitions": ["(none)"],
        "Listeners": [
            f"Node: {each['node']}, interface: {each['ip_address']}, port: {each['port']}, "
            f"protocol: {each['protocol']}"
            for each in found["listeners"]
        ],
    }
    _show_sections(sections)


def _show_sections(sections: Mapping[str, Sequence[str]]) -> None:
    for title, lines in sections.items():
        click.echo(click.style(title, bold=True) + "\n\n" + "\n".join(lines) + "\n")


@_command
def stop_app(quiet: bool) -> None:
    """Send clients of queues away. Kafka's stay. Whoever comes has to wait for start_app."""
    api = connect()
    _say(quiet, f"Stopping rabbit application on node {api.get('cluster-name')['name']} ...")
    api.put("application", body={"running": False})


@_command
def start_app(quiet: bool) -> None:
    """Let clients of queues in again."""
    api = connect()
    _say(quiet, f"Starting node {api.get('cluster-name')['name']} ...")
    api.put("application", body={"running": True})


@_command
def reset(quiet: bool) -> None:
    """Delete all that is declared, after stop_app.

    Queues, exchanges, bindings and virtual hosts; topics and users stay.
    """
    api = connect()
    if api.get("application")["running"]:
        raise WrongUsage(
            "this command requires the 'rabbit' app to be stopped on the target node. "
            "Stop it with 'rabbitmqctl stop_app'."
        )
    _say(quiet, f"Resetting node {api.get('cluster-name')['name']} ...")
    api.delete("application", "contents")


def _stopping(command: Callable[..., Any]) -> click.Command:
    for option in (
        click.argument("pid_file", required=False),
        click.option("--data-dir", metavar="DIR", envvar="ENTREPOT_DATA_DIR"),
        click.option("-q", "--quiet", is_flag=True),
        click.option("-n", "--node", metavar="NODE", expose_value=False, help="Not looked at."),
    ):
        command = option(command)
    return rabbitmqctl.command(command.__name__)(command)


@_stopping
def stop(pid_file: str | None, data_dir: str | None, quiet: bool) -> None:
    """End the broker. Its data are in DIR, or beside PID_FILE, or in ./data."""
    _stop(pid_file, data_dir, quiet, "Stopping and halting")


@_stopping
def shutdown(pid_file: str | None, data_dir: str | None, quiet: bool) -> None:
    """The same."""
    _stop(pid_file, data_dir, quiet, "Shutting down")


def _stop(pid_file: str | None, data_dir: str | None, quiet: bool, verb: str) -> None:
    directory = Path(pid_file).parent if pid_file else Path(data_dir or Config().data_dir)
    _say(quiet, f"{verb} the broker on {directory.absolute()} ...")
    pid = background.stop(directory.absolute())
    _say(quiet, f"stopped process {pid}")
