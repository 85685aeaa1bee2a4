"""Event sourcing and CQRS: accounts whose every state is folded out of what happened.

    account-commands ── decide ──> account-events ──┬── balances, turnover ──> views
                          └──> account-rejections   └── snapshots ──> account-snapshots
                                                                            │
                                   account-events ──── restored <───────────┘

The log is the truth, commands included. On the write path `decide` holds each command
against the account as its events made it, and answers with an event or a rejection, both in
one transaction. Decisions depend on the commands and their order alone: deciding them again
gives the same events. On the read path each view folds the events into the shape that its
questions need. The two paths meet in the log only, so a view is a moment behind; a command
may therefore say the version it has `seen`, and is refused when the account has moved on.

Every `SNAPSHOT_EVERY` events an account's state goes to `account-snapshots`, to be made with
`cleanup.policy=compact`, for only the newest of an account counts. `restored` begins there
and folds what came later: events that a snapshot covers may be deleted. All records have the
account as their key, so its commands and its events each stay in order, in one partition.

    python -m examples.pipelines.feed event_sourcing
    entrepot pipeline run examples/pipelines/event_sourcing.py --live
    entrepot pipeline run examples/pipelines/event_sourcing.py balances --replay
    entrepot pipeline show examples/pipelines/event_sourcing.py balances
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StatefulProcessor

from entrepot.spark.pipelines import Delta, Topic, pipeline

COMMANDS = Topic(
    "account-commands",
    schema="id string, account string, action string, cents bigint, seen bigint, at timestamp",
)
EVENTS = Topic(
    "account-events",
    schema="account string, version bigint, event string, cents bigint, command string,"
    " at timestamp",
)
SNAPSHOTS = Topic(
    "account-snapshots", schema="account string, version bigint, is_open boolean, cents bigint"
)
REJECTIONS_TOPIC = "account-rejections"
SNAPSHOT_EVERY = 100
CENTS_MAX = 10**12  # Of one movement. A balance then stays far below what a bigint holds.

STATE = "version bigint, is_open boolean, cents bigint"
DECISION = (
    "topic string, account string, version bigint, event string, cents bigint,"
    " command string, at bigint, reason string"
)
EVENT_OF = {"open": "opened", "deposit": "deposited", "withdraw": "withdrawn", "close": "closed"}


# --- what an account is: no Spark, no clock, nothing but values


class Account(NamedTuple):
    version: int = 0  # How many events made it so.
    is_open: bool = False
    cents: int = 0  # Never below zero: `refusal` sees to that.


def evolve(account: Account, event: str, cents: int | None) -> Account:
    """The account after one more event. Events are facts: nothing is checked here."""
    change = {"deposited": 1, "withdrawn": -1}.get(event, 0) * (cents or 0)
    is_open = {"opened": True, "closed": False}.get(event, account.is_open)
    return Account(account.version + 1, is_open, account.cents + change)


def refusal(account: Account, action: str, cents: int | None, seen: int | None) -> str | None:
    """Why this command must not happen to this account; None when it may."""
    if action not in EVENT_OF:
        return f"there is no action {action}"
    if seen is not None and seen != account.version:
        return f"the account is at version {account.version}, not {seen}"
    if account.is_open == (action == "open"):
        return "the account is open already" if account.is_open else "the account is not open"
    if action in ("deposit", "withdraw") and not 0 < (cents or 0) <= CENTS_MAX:
        return f"the amount must be from 1 to {CENTS_MAX:,} cents"
    if action == "withdraw" and cents is not None and cents > account.cents:
        return f"there are only {account.cents} cents"
    if action == "close" and account.cents:
        return f"there are {account.cents} cents left"
    return None


# --- the write path


class PerAccount(StatefulProcessor):
    """Spark keeps one account's state from batch to batch; `step` says how it goes on."""

    def init(self, handle: Any) -> None:
        self._state = handle.getValueState("account", STATE)

    def step(self, name: str, account: Account, rows: Iterator[Row]) -> tuple[Account, list[Row]]:
        raise NotImplementedError

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        account, told = self.step(key[0], Account(*(self._state.get() or Account())), rows)
        self._state.update(account)
        yield from told

    def close(self) -> None:
        """Nothing to give back."""


class Deciding(PerAccount):
    """One account's commands in the order of the log, held against its state."""

    def step(self, name: str, account: Account, rows: Iterator[Row]) -> tuple[Account, list[Row]]:
        told = []
        for command in sorted(rows, key=lambda row: row._offset):
            reason = refusal(account, command.action, command.cents, command.seen)
            reason = reason if name else "the command names no account"
            event = None if reason else EVENT_OF[command.action]
            if event:
                account = evolve(account, event, command.cents)
            told.append(
                Row(
                    topic=EVENTS.name if event else REJECTIONS_TOPIC,
                    account=name,
                    version=account.version,
                    event=event,
                    cents=command.cents,
                    command=command.id,
                    at=command.at,
                    reason=reason,
                )
            )
        return account, told


@pipeline(reads=COMMANDS, writes=Topic(EVENTS.name))
def decide(commands: DataFrame) -> DataFrame:
    """Each command becomes an event, or a rejection with its reason."""
    # The time as a number: in Python a time without a zone would depend on the machine.
    numbered = commands.withColumn("at", F.unix_micros("at"))
    decisions = numbered.groupBy("account").transformWithState(
        Deciding(), DECISION, outputMode="append", timeMode="none"
    )
    decisions = decisions.withColumn("at", F.timestamp_micros("at"))
    told = [name for name in decisions.columns if name != "topic"]
    return decisions.select(
        "topic", F.col("account").alias("key"), F.to_json(F.struct(*told)).alias("value")
    )


# --- the read path


def signed_cents() -> Any:
    amount = F.when(F.col("event") == "deposited", F.col("cents"))
    return F.coalesce(amount.when(F.col("event") == "withdrawn", -F.col("cents")), F.lit(0))


@pipeline(reads=EVENTS, writes=Delta("balances", keys=["account"]), mode="update")
def balances(events: DataFrame) -> DataFrame:
    """What each account is now. Rebuilt from nothing by --replay."""
    last = F.max_by("event", "version")
    return events.groupBy("account").agg(
        F.max("version").alias("version"),
        (last != "closed").alias("is_open"),
        F.sum(signed_cents()).alias("cents"),
    )


@pipeline(reads=EVENTS, writes=Delta("turnover", keys=["day"]), mode="update")
def turnover(events: DataFrame) -> DataFrame:
    """What moved on each day: the same events, for another question."""
    moved = events.where(F.col("event").isin("deposited", "withdrawn"))
    return moved.groupBy(F.to_date("at").alias("day")).agg(
        F.sum(F.when(F.col("event") == "deposited", F.col("cents"))).alias("deposited"),
        F.sum(F.when(F.col("event") == "withdrawn", F.col("cents"))).alias("withdrawn"),
        F.count("*").alias("movements"),
    )


# --- snapshots


class Snapshotting(PerAccount):
    """The state of one account at every so many events."""

    def __init__(self, every: int) -> None:
        self._every = every

    def step(self, name: str, account: Account, rows: Iterator[Row]) -> tuple[Account, list[Row]]:
        newest = None
        for row in sorted(rows, key=lambda row: row.version):
            account = evolve(account, row.event, row.cents)
            if account.version % self._every == 0:
                newest = account
        return account, [] if newest is None else [Row(account=name, **newest._asdict())]


def snapshots_every(events: DataFrame, every: int) -> DataFrame:
    return events.groupBy("account").transformWithState(
        Snapshotting(every), f"account string, {STATE}", outputMode="append", timeMode="none"
    )


@pipeline(reads=EVENTS, writes=Topic(SNAPSHOTS.name, key="account"))
def snapshots(events: DataFrame) -> DataFrame:
    """Where a later reader may begin."""
    return snapshots_every(events, SNAPSHOT_EVERY)


class Restoring(PerAccount):
    """The newest snapshot of one account, and the events after it.

    The two topics run side by side, so events may come before the snapshot they build on.
    They wait until the version before theirs is there, in whatever batch it comes.
    """

    def init(self, handle: Any) -> None:
        super().init(handle)
        self._early = handle.getListState("early", "version bigint, event string, cents bigint")

    def step(self, name: str, account: Account, rows: Iterator[Row]) -> tuple[Account, list[Row]]:
        before = account
        snapshots, events = [], [tuple(row) for row in self._early.get()]
        for row in rows:
            if row.event is None:
                snapshots.append(Account(row.version, row.is_open, row.cents))
            else:
                events.append((row.version, row.event, row.cents))
        account = max([account, *snapshots])  # A tuple with its version first.
        early = []
        for version, event, cents in sorted(events):
            if version == account.version + 1:
                account = evolve(account, event, cents)
            elif version > account.version:
                early.append((version, event, cents))
        self._early.clear()
        if early:  # Spark refuses to keep an empty list.
            self._early.put(early)
        return account, [] if account == before else [Row(account=name, **account._asdict())]


@pipeline(reads=(SNAPSHOTS, EVENTS), writes=Delta("restored", keys=["account"]), mode="update")
def restored(snapshots: DataFrame, events: DataFrame) -> DataFrame:
    """`balances` again, from the newest snapshots and the events after them."""
    columns = ["account", "version", "is_open", "cents", "event"]
    begun = snapshots.withColumn("event", F.lit(None).cast("string")).select(columns)
    later = events.withColumn("is_open", F.lit(None).cast("boolean")).select(columns)
    return (
        begun.union(later)
        .groupBy("account")
        .transformWithState(
            Restoring(), f"account string, {STATE}", outputMode="update", timeMode="none"
        )
    )
