"""`entrepot transactions`: list, describe, abort."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from entrepot.cli.talk import bootstrap_option, json_option, show_json, show_table, talk

if TYPE_CHECKING:
    from entrepot.client.client import Client
    from entrepot.client.transaction_admin import TransactionInfo

_NO_TIMEOUT_MS = 2**31 - 1  # Two-phase commit: the transaction waits for whoever decides.


@click.group()
def transactions() -> None:
    """List transactions, see what they hold back, abort those that nobody ends.

    A reader of committed records gets nothing that lies behind an open transaction. One whose
    producer was killed is aborted by the broker after its timeout; one without a timeout (two-phase
    commit, as Spark's sink uses it) when the query runs again, or by `abort`.
    """


@transactions.command("list")
@click.option("--all", "shows_all", is_flag=True, help="Also those that have ended.")
@json_option
@bootstrap_option
def list_(shows_all: bool, as_json: bool, bootstrap: str) -> None:
    """List open transactions.

    Since when they are, and in which partitions they hold readers back.
    """

    async def work(client: "Client") -> "list[TransactionInfo]":
        from entrepot.client.errors import Refused
        from entrepot.client.transaction_admin import OPEN_STATES, TransactionAdmin, is_unknown

        admin, found = TransactionAdmin(client), []
        for each in await admin.all(states=() if shows_all else OPEN_STATES):
            try:
                found.append(await admin.describe(each.transactional_id))
            except Refused as error:
                if not is_unknown(error):  # It is gone since it was listed.
                    raise
        return found

    found = talk(bootstrap, work)
    if as_json:
        show_json(map(document, found))
    else:
        show_table(_shown(each) for each in found)


@transactions.command()
@click.argument("transactional_ids", metavar="TRANSACTIONAL-ID...", nargs=-1, required=True)
@json_option
@bootstrap_option
def describe(transactional_ids: tuple[str, ...], as_json: bool, bootstrap: str) -> None:
    """Show the state of transactional ids.

    Of open transactions the partitions, too.
    """

    async def work(client: "Client") -> "list[TransactionInfo]":
        from entrepot.client.transaction_admin import TransactionAdmin

        return [await TransactionAdmin(client).describe(each) for each in transactional_ids]

    for each in talk(bootstrap, work):
        if as_json:
            show_json([document(each)])
            continue
        click.echo(f"transactional id {each.transactional_id}: {each.state}")
        click.echo(f"  producer {each.producer_id}, epoch {each.epoch}")
        click.echo(f"  timeout: {_timeout(each.timeout_ms)}")
        if each.is_open and each.started_ms is not None:
            click.echo(f"  open since {_time(each.started_ms)}")
        for part in each.parts:
            click.echo(f"  {part}")


@transactions.command()
@click.argument("transactional_ids", metavar="TRANSACTIONAL-ID...", nargs=-1, required=True)
@bootstrap_option
def abort(transactional_ids: tuple[str, ...], bootstrap: str) -> None:
    """Abort open transactions, and fence their producers.

    A transaction of a Spark query that belongs to a batch which is written already is committed:
    the query will not write it again.
    """

    async def work(client: "Client") -> None:
        from entrepot.client.deciding import end_left_open
        from entrepot.client.transactions import OpenTransaction

        for each in transactional_ids:
            info = await _open(client, each)
            left = OpenTransaction(each, info.producer_id, info.epoch)
            is_committed = await end_left_open(client, left)
            done = "committed, as its query had decided" if is_committed else "aborted"
            click.echo(f"{each}: {done}")

    talk(bootstrap, work)


async def _open(client: "Client", transactional_id: str) -> "TransactionInfo":
    from entrepot.client.transaction_admin import TransactionAdmin

    info = await TransactionAdmin(client).describe(transactional_id)
    if info.state != "Ongoing":
        raise click.ClickException(
            f"transactional id {transactional_id} has no transaction to abort: it is {info.state}"
        )
    return info


def document(info: "TransactionInfo") -> dict[str, object]:
    return {
        "transactional_id": info.transactional_id,
        "state": info.state,
        "producer_id": info.producer_id,
        "epoch": info.epoch,
        "timeout_ms": None if info.timeout_ms == _NO_TIMEOUT_MS else info.timeout_ms,
        "started_ms": info.started_ms if info.is_open else None,
        "partitions": [list(part) for part in info.parts],
    }


def _shown(info: "TransactionInfo") -> dict[str, object]:
    is_begun = info.is_open and info.started_ms is not None
    return {
        "transactional id": info.transactional_id,
        "state": info.state,
        "open since": _time(info.started_ms or 0) if is_begun else "-",
        "timeout": _timeout(info.timeout_ms),
        "partitions": ", ".join(f"{part.topic}-{part.partition}" for part in info.parts) or "-",
    }


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _timeout(ms: int) -> str:
    return "none" if ms == _NO_TIMEOUT_MS else f"{ms / 1000:g} s"
