"""`kafka-transactions`: the commands and the output of Kafka's tool of that name."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from entrepot.cli.kafka_flags import bootstrap_options
from entrepot.cli.security import command_config_option
from entrepot.cli.talk import talk

if TYPE_CHECKING:
    from entrepot.client.client import Client, TopicPartition
    from entrepot.client.transaction_admin import ActiveProducer, TransactionAdmin

_NONE = "None"
_PARTITIONS_AT_ONCE = 500
_HANGING_COLUMNS = (
    "Topic",
    "Partition",
    "ProducerId",
    "ProducerEpoch",
    "CoordinatorEpoch",
    "StartOffset",
    "LastTimestamp",
    "Duration(min)",
)
_topic_option = click.option("--topic", required=True, help="Topic name.")
_partition_option = click.option("--partition", type=int, required=True, help="Partition number.")


@click.group("kafka-transactions")
@command_config_option
@bootstrap_options
@click.pass_context
def kafka_transactions(context: click.Context, bootstrap: str, broker_list: str | None) -> None:
    """Analyze the transactional state of producers, with the commands of Kafka's tool.

    It can be used to detect and recover from hanging transactions.
    """
    context.obj = broker_list or bootstrap


@kafka_transactions.command("list")
@click.option("--duration-filter", type=int, default=-1, metavar="MS", help="Open for longer.")
@click.option("--transactional-id-pattern", "pattern", metavar="REGEX", help="Of the whole id.")
@click.pass_obj
def list_(bootstrap: str, duration_filter: int, pattern: str | None) -> None:
    """List transactions."""

    async def work(client: "Client") -> None:
        from entrepot.client.transaction_admin import TransactionAdmin

        found = await TransactionAdmin(client).all(open_for_ms=duration_filter, pattern=pattern)
        columns = ("TransactionalId", "Coordinator", "ProducerId", "TransactionState")
        rows = [(e.transactional_id, e.coordinator, e.producer_id, e.state) for e in found]
        print_table(columns, rows)

    talk(bootstrap, work)


@kafka_transactions.command()
@click.option("--transactional-id", required=True, help="Transactional id.")
@click.pass_obj
def describe(bootstrap: str, transactional_id: str) -> None:
    """Describe the state of an active transactional-id."""

    async def work(client: "Client") -> None:
        from entrepot.client.errors import Refused
        from entrepot.client.transaction_admin import TransactionAdmin

        try:
            found = await TransactionAdmin(client).describe(transactional_id)
        except Refused as error:
            raise click.ClickException(
                f"Failed to describe transaction state of transactional-id `{transactional_id}`: "
                f"{error}"
            ) from None
        started: object = _NONE if found.started_ms is None else found.started_ms
        open_ms: object = _NONE if found.started_ms is None else now_ms() - found.started_ms
        row = {
            "CoordinatorId": found.coordinator,
            "TransactionalId": transactional_id,
            "ProducerId": found.producer_id,
            "ProducerEpoch": found.epoch,
            "TransactionState": found.state,
            "TransactionTimeoutMs": found.timeout_ms,
            "CurrentTransactionStartTimeMs": started,
            "TransactionDurationMs": open_ms,
            "TopicPartitions": ",".join(f"{part.topic}-{part.partition}" for part in found.parts),
        }
        print_table(tuple(row), [tuple(row.values())])

    talk(bootstrap, work)


@kafka_transactions.command("describe-producers")
@click.option("--broker-id", type=int, expose_value=False, help="Taken, and not needed.")
@_topic_option
@_partition_option
@click.pass_obj
def describe_producers(bootstrap: str, topic: str, partition: int) -> None:
    """Describe the active producers of a partition."""

    async def work(client: "Client") -> None:
        columns = (
            "ProducerId",
            "ProducerEpoch",
            "LatestCoordinatorEpoch",
            "LastSequence",
            "LastTimestamp",
            "CurrentTransactionStartOffset",
        )
        rows = [
            (
                each.producer_id,
                each.epoch,
                each.coordinator_epoch,
                each.last_sequence,
                each.last_timestamp_ms,
                _NONE if each.open_from is None else each.open_from,
            )
            for each in await _producers(client, topic, partition)
        ]
        print_table(columns, rows)

    talk(bootstrap, work)


@kafka_transactions.command()
@_topic_option
@_partition_option
@click.option("--start-offset", type=int, help="Start offset of the transaction to abort.")
@click.option("--producer-id", type=int, help="Instead of it, with the next two.")
@click.option("--producer-epoch", type=int)
@click.option("--coordinator-epoch", type=int)
@click.pass_obj
def abort(
    bootstrap: str,
    topic: str,
    partition: int,
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
    coordinator_epoch: int | None,
) -> None:
    """Abort a hanging transaction."""
    if start_offset is None and producer_id is None:
        raise click.ClickException(
            "The transaction to abort must be identified either with --start-offset or with "
            "--producer-id, --producer-epoch, and --coordinator-epoch"
        )
    for name, value in (("producer", producer_epoch), ("coordinator", coordinator_epoch)):
        if start_offset is None and value is None:
            raise click.ClickException(f"Missing required argument --{name}-epoch")

    async def work(client: "Client") -> None:
        from entrepot.client.client import TopicPartition
        from entrepot.client.transaction_admin import ActiveProducer, TransactionAdmin

        if start_offset is not None:
            found = await _producers(client, topic, partition)
            producer = next((each for each in found if each.open_from == start_offset), None)
            if producer is None:
                raise click.ClickException(
                    f"Could not find any open transactions starting at offset {start_offset} "
                    f"on partition {topic}-{partition}"
                )
        else:
            assert producer_id is not None
            assert producer_epoch is not None
            assert coordinator_epoch is not None
            part = TopicPartition(topic, partition)
            producer = ActiveProducer(
                part, producer_id, producer_epoch, coordinator_epoch, -1, -1, None
            )
        await TransactionAdmin(client).abort(producer)

    talk(bootstrap, work)


@kafka_transactions.command("find-hanging")
@click.option("--broker-id", type=int, help="Of the broker whose partitions to search.")
@click.option(
    "--max-transaction-timeout",
    type=int,
    default=15,
    metavar="MINUTES",
    show_default=True,
    help="Only what has been open for longer.",
)
@click.option("--topic", help="Topic name to limit search to.")
@click.option("--partition", type=int, help="Partition number.")
@click.pass_obj
def find_hanging(
    bootstrap: str,
    broker_id: int | None,
    max_transaction_timeout: int,
    topic: str | None,
    partition: int | None,
) -> None:
    """Find hanging transactions.

    They are open in a partition, and their coordinator knows nothing of it.
    """
    if topic is None and broker_id is None:
        raise click.ClickException(
            "The `find-hanging` command requires either --topic or --broker-id to limit the scope "
            "of the search"
        )
    if partition is not None and topic is None:
        raise click.ClickException("The --partition argument requires --topic to be provided")

    async def work(client: "Client") -> None:
        from entrepot.client.transaction_admin import TransactionAdmin

        admin = TransactionAdmin(client)
        parts = await _parts(client, topic, partition, broker_id)
        old: list[ActiveProducer] = []
        for first in range(0, len(parts), _PARTITIONS_AT_ONCE):
            some = parts[first : first + _PARTITIONS_AT_ONCE]
            old += [e for e in await admin.producers(some) if is_old(e, max_transaction_timeout)]
        rows = [_hanging_row(each) for each in old if not await _is_known(admin, each)]
        print_table(_HANGING_COLUMNS, rows)

    talk(bootstrap, work)


async def _producers(client: "Client", topic: str, partition: int) -> "list[ActiveProducer]":
    from entrepot.client.client import TopicPartition
    from entrepot.client.errors import Refused
    from entrepot.client.transaction_admin import TransactionAdmin

    try:
        return await TransactionAdmin(client).producers([TopicPartition(topic, partition)])
    except Refused as error:
        raise click.ClickException(
            f"Failed to describe producers for partition {topic}-{partition} on leader: {error}"
        ) from None


async def _parts(
    client: "Client", topic: str | None, partition: int | None, broker_id: int | None
) -> "list[TopicPartition]":
    from entrepot.client.admin import Admin
    from entrepot.client.client import TopicPartition
    from entrepot.client.cluster import TopicInfo

    if topic is not None and partition is not None:
        return [TopicPartition(topic, partition)]
    topics = await Admin(client).describe() if topic is None else [await client.topic(topic)]
    return [
        TopicPartition(info.name, each.index)
        for info in topics
        if isinstance(info, TopicInfo)
        for each in info.partitions
        if broker_id is None or broker_id in each.replicas
    ]


async def _is_known(admin: "TransactionAdmin", producer: "ActiveProducer") -> bool:
    """Return whether the coordinator still has to end the transaction in this partition."""
    from entrepot.client.errors import Refused
    from entrepot.client.transaction_admin import is_unknown

    for each in await admin.all(producer_ids=(producer.producer_id,)):
        try:
            if producer.part in (await admin.describe(each.transactional_id)).parts:
                return True
        except Refused as error:
            if not is_unknown(error):
                raise
    return False


def is_old(producer: "ActiveProducer", minutes: int) -> bool:
    if producer.open_from is None:
        return False
    return now_ms() - producer.last_timestamp_ms > minutes * 60_000


def _hanging_row(producer: "ActiveProducer") -> tuple[object, ...]:
    return (
        producer.part.topic,
        producer.part.partition,
        producer.producer_id,
        producer.epoch,
        producer.coordinator_epoch,
        producer.open_from,
        producer.last_timestamp_ms,
        (now_ms() - producer.last_timestamp_ms) // 60_000,
    )


def now_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table as Kafka's tool prints it: columns of equal width, a tab after each."""
    lines = [list(columns), *([str(each) for each in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        click.echo("".join(f"{t:<{w}}\t" for t, w in zip(line, widths, strict=True)))
