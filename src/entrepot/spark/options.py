"""What a user says to the source and the sink, read once and checked.

Names and meanings are those of Spark's Kafka source, so that one can take the place of
the other. A name that neither we nor Spark knows is refused, with the nearest that we do:
a misspelt option that is silently ignored reads the wrong data. Names come from Spark in
lower case; texts for people have them as they are documented.

What Spark's source knows and this one has no use for is in `kafka_options`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeVar

from entrepot.client.client import EARLIEST, LATEST, TopicPartition
from entrepot.client.errors import ClientError
from entrepot.client.queue_leases import Login
from entrepot.client.security import SECURITY_PROPERTIES
from entrepot.core.compression import Codec
from entrepot.core.errors import InvalidName
from entrepot.spark.kafka_options import IGNORED_BY_SINK, IGNORED_BY_SOURCE, REFUSED
from entrepot.spark.option_values import (
    assigned,
    boolean,
    choice,
    directory,
    duration,
    milliseconds,
    pattern,
    per_partition,
    positive,
    server,
    servers,
    short,
    store,
    topic,
    topics,
    up_to,
)

BOOTSTRAP = "kafka.bootstrap.servers"
ISOLATION = "kafka.isolation.level"
DATA_DIRECTORY = "dataDirectory"
TIER = "tier"
CLIENT_ID = "kafka.client.id"
_CONNECTION = (BOOTSTRAP, CLIENT_ID, *(f"kafka.{name}" for name in SECURITY_PROPERTIES))
_WHICH = ("subscribe", "subscribePattern", "assign")
SOURCE_OPTIONS = (
    *_CONNECTION,
    *_WHICH,
    ISOLATION,
    DATA_DIRECTORY,
    TIER,
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxOffsetsPerTrigger",
    "includeHeaders",
)
HTTP, USER, PASSWORD = "entrepot.http", "entrepot.user", "entrepot.password"
QUEUE_SOURCE_OPTIONS = (
    *_CONNECTION,
    HTTP,
    USER,
    PASSWORD,
    "queue",
    "maxMessagesPerTrigger",
    "leaseSeconds",
    "maxFailures",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
)
AMQP = "entrepot.amqp"
QUEUE_SINK_OPTIONS = (AMQP, USER, PASSWORD, "queue", "exchange", "includeHeaders")
COMPRESSION = "kafka.compression.type"
SINK_OPTIONS = (*_CONNECTION, "topic", "includeHeaders", COMPRESSION)
_OF_SPARK = ("path", "paths", "checkpointlocation", "queryname", "truncate", "numrows")

_Value = TypeVar("_Value")


class OptionError(ValueError):
    """An option that cannot be honoured; the text names it, and what is allowed."""


@dataclass(frozen=True, slots=True)
class Address:
    """How to reach the broker, from wherever a task runs."""

    bootstrap: str
    properties: tuple[tuple[str, str], ...] = ()  # Kafka's, of security.
    client_id: str = "entrepot-spark"  # What the broker calls us, in quotas and in its log.


@dataclass(frozen=True, slots=True)
class Which:
    """Of the three, one."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadBound:
    """Where to begin or to end: at offsets or times, the same for all partitions or for each.

    EARLIEST and LATEST are offsets, too.
    """

    option: str
    everywhere: int | None = None
    each: tuple[tuple[TopicPartition, int], ...] = ()
    is_time: bool = False


@dataclass(frozen=True, slots=True)
class SourceOptions:
    address: Address | None  # None: there is a data directory or an archive, and no broker.
    which: Which
    begin: ReadBound
    end: ReadBound  # For a stream, the latest.
    late_begin_is_latest: bool = False  # When nothing is as young as the time to begin at.
    committed: bool = True
    fail_on_data_loss: bool = True
    partitions_min: int | None = None
    range_rows_max: int | None = None
    trigger_rows_max: int | None = None
    trigger_rows_min: int | None = None  # With less, a micro-batch waits,
    trigger_delay_s: float = 900.0  # but no longer than this.
    with_headers: bool = False
    data_directory: str | None = None  # Of the broker, as the executors see it.
    tier: str | None = None  # Where archives are, of what the broker does not have any more.


@dataclass(frozen=True, slots=True)
class QueueSourceOptions:
    address: Address  # Where executors read messages,
    queue: str
    http: str  # and where the driver leases them.
    login: Login
    trigger_rows_max: int = 10_000
    lease_seconds: int = 60
    failures_max: int | None = None  # Of a message that is alone; then it is rejected.
    fail_on_data_loss: bool = True
    partitions_min: int | None = None
    range_rows_max: int | None = None
    with_headers: bool = False


@dataclass(frozen=True, slots=True)
class SinkOptions:
    address: Address
    topic: str | None = None  # None: every row says its own.
    codec: Codec = Codec.NONE


@dataclass(frozen=True, slots=True)
class QueueSinkOptions:
    """Of queue and exchange, one."""

    amqp: str
    login: Login
    queue: str | None = None
    exchange: str | None = None


def read_source(options: Mapping[str, str], *, is_stream: bool) -> SourceOptions:
    given = _Given(options, SOURCE_OPTIONS, IGNORED_BY_SOURCE)
    if is_stream and (ending := [name for name in _ENDING if given.has(name)]):
        raise OptionError(f"{ending[0]} is for batch queries: a stream has no end")
    begin = _place(given, "starting", LATEST if is_stream else EARLIEST)
    if not is_stream and not begin.is_time and LATEST in (begin.everywhere, *_numbers(begin)):
        raise OptionError(f"{begin.option}: a batch query that begins at the latest has no rows")
    end = _place(given, "ending", LATEST)
    if not end.is_time and EARLIEST in (end.everywhere, *_numbers(end)):
        raise OptionError(f"{end.option}: a query that ends at the earliest has no rows")
    strategy = given.read("startingOffsetsByTimestampStrategy", choice("error", "latest"), "error")
    isolation = given.read(ISOLATION, choice("read_committed", "read_uncommitted"), None)
    data = given.read(DATA_DIRECTORY, directory, None)
    tier = given.read(TIER, store, None)
    is_alone = data is not None or tier is not None
    rows_min = given.read("minOffsetsPerTrigger", positive, None)
    rows_max = given.read("maxOffsetsPerTrigger", positive, None)
    if rows_min is not None and rows_max is not None and rows_min > rows_max:
        raise OptionError(
            f"minOffsetsPerTrigger: {rows_min} is more than maxOffsetsPerTrigger, {rows_max}"
        )
    return SourceOptions(
        address=None if is_alone and not given.has(BOOTSTRAP) else _address(given),
        which=_which(given),
        begin=begin,
        end=end,
        late_begin_is_latest=strategy == "latest",
        committed=isolation != "read_uncommitted",
        fail_on_data_loss=given.read("failOnDataLoss", boolean, True),
        partitions_min=given.read("minPartitions", positive, None),
        range_rows_max=given.read("maxRecordsPerPartition", positive, None),
        trigger_rows_max=rows_max,
        trigger_rows_min=rows_min,
        trigger_delay_s=given.read("maxTriggerDelay", duration, 900.0),
        with_headers=includes_headers(options),
        data_directory=data,
        tier=tier,
    )


def names_queue(options: Mapping[str, str]) -> bool:
    given = _Given(options, None)
    return given.has("queue") or given.has("exchange")


def read_queue_source(options: Mapping[str, str]) -> QueueSourceOptions:
    given = _Given(options, QUEUE_SOURCE_OPTIONS, IGNORED_BY_SOURCE)
    http = given.read(HTTP, server, None)
    if http is None:
        raise OptionError(
            f"{HTTP} is missing: the broker's management port, such as localhost:15672"
        )
    return QueueSourceOptions(
        address=_address(given),
        queue=given.read("queue", topic, None),
        http=http,
        login=_login(given),
        trigger_rows_max=given.read("maxMessagesPerTrigger", up_to(100_000), 10_000),
        lease_seconds=given.read("leaseSeconds", up_to(43_200), 60),
        failures_max=given.read("maxFailures", positive, None),
        fail_on_data_loss=given.read("failOnDataLoss", boolean, True),
        partitions_min=given.read("minPartitions", positive, None),
        range_rows_max=given.read("maxRecordsPerPartition", positive, None),
        with_headers=includes_headers(options),
    )


def read_sink(options: Mapping[str, str]) -> SinkOptions:
    given = _Given(options, SINK_OPTIONS, IGNORED_BY_SINK)
    includes_headers(options)
    named = given.read(COMPRESSION, choice(*(codec.name.lower() for codec in Codec)), "none")
    return SinkOptions(
        address=_address(given),
        topic=given.read("topic", topic, None),
        codec=Codec[named.upper()],
    )


def read_queue_sink(options: Mapping[str, str]) -> QueueSinkOptions:
    given = _Given(options, QUEUE_SINK_OPTIONS)
    includes_headers(options)
    if given.has("queue") and given.has("exchange"):
        raise OptionError("queue and exchange: one of them says where to write")
    amqp = given.read(AMQP, server, None)
    if amqp is None:
        raise OptionError(f"{AMQP} is missing: the broker's port for AMQP, such as localhost:5672")
    return QueueSinkOptions(
        amqp=amqp,
        login=_login(given),
        queue=given.read("queue", short, None),
        exchange=given.read("exchange", short, None),
    )


def includes_headers(options: Mapping[str, str]) -> bool:
    return bool(_Given(options, None).read("includeHeaders", boolean, False))


def check(options: Mapping[str, str]) -> None:
    """Raise OptionError for what can be seen to be wrong before Spark says what it wants to do.

    Spark makes a data source at `load`, `save` and `start`, for reading or for writing, and asks
    for a reader or a writer only later, when an error is hard to find between those of Java.
    """
    given = _Given(options, None)
    if names_queue(options):
        if given.has(HTTP):
            read_queue_source(options)
        elif given.has(AMQP):
            read_queue_sink(options)
        return
    reads = any(given.has(name) for name in _WHICH)
    writes = given.has("topic") or given.has(COMPRESSION)
    if reads and not writes:  # With both, the reader or the writer says which is wrong.
        check_source(options)
    elif writes and not reads:
        read_sink(options)


def check_source(options: Mapping[str, str]) -> None:
    """Raise OptionError for what neither a table nor a stream can be read with."""
    try:
        read_source(options, is_stream=True)
    except OptionError:
        read_source(options, is_stream=False)


def ignored(options: Mapping[str, str]) -> list[str]:
    """Return a line for each option that is taken and does nothing: its name, and why."""
    reasons = IGNORED_BY_SOURCE | IGNORED_BY_SINK
    names = {name.lower(): name for name in reasons}
    found = sorted(names[name.lower()] for name in options if name.lower() in names)
    return [f"option {name} has no effect: {reasons[name]}" for name in found]


class _Given:
    """What was said, each taken with its own reader."""

    def __init__(
        self,
        options: Mapping[str, str],
        known: Iterable[str] | None,
        without_effect: Iterable[str] = (),
    ) -> None:
        """Refuse names that are not known; none if `known` is None: then somebody else looks."""
        self._options = {name.lower(): value for name, value in options.items()}
        if known is None:
            return
        names = {name.lower(): name for name in (*known, *without_effect)}
        refused = {name.lower(): name for name in (*REFUSED, *IGNORED_BY_SOURCE, *IGNORED_BY_SINK)}
        for name in self._options:
            if name in names or name in _OF_SPARK or name.startswith("spark."):
                continue
            if name in refused:
                written = refused[name]
                instead = REFUSED.get(written, "it is not for this direction")
                raise OptionError(
                    f"{written} is an option of Spark's Kafka source, not supported here: {instead}"
                )
            near = get_close_matches(name, names, n=1)
            hint = f"; is it {names[near[0]]} that is meant?" if near else ""
            raise OptionError(f"there is no option {name}{hint}")

    def has(self, name: str) -> bool:
        return name.lower() in self._options

    def read(self, name: str, parse: Callable[[str], _Value], otherwise: Any) -> Any:
        text = self._options.get(name.lower())
        if text is None:
            return otherwise
        try:
            return parse(text)
        except (ValueError, ClientError, InvalidName) as error:
            raise OptionError(f"{name}: {error}") from None


# --- what belongs together

_ENDING = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")


def _place(given: _Given, side: str, otherwise: int) -> ReadBound:
    """Read where to begin or end: one time goes before many times, and these before offsets."""
    option = f"{side}Timestamp"
    if given.has(option):
        return ReadBound(option, given.read(option, milliseconds, None), is_time=True)
    option = f"{side}OffsetsByTimestamp"
    if given.has(option):
        each = given.read(option, lambda text: per_partition(text, 0), ())
        return ReadBound(option, each=each, is_time=True)
    option = f"{side}Offsets"
    said: ReadBound = given.read(
        option, lambda text: _offsets(option, text), ReadBound(option, otherwise)
    )
    return said


def _offsets(option: str, text: str) -> ReadBound:
    named = {"earliest": EARLIEST, "latest": LATEST}.get(text.strip().lower())
    if named is not None:
        return ReadBound(option, named)
    if not text.lstrip().startswith("{"):
        raise ValueError(f"{text!r} is neither earliest nor latest nor JSON")
    return ReadBound(option, each=per_partition(text, EARLIEST))


def _numbers(place: ReadBound) -> list[int]:
    return [number for _, number in place.each]


def _which(given: _Given) -> Which:
    named = [name for name in _WHICH if given.has(name)]
    if len(named) != 1:
        found = " and ".join(named) or "none"
        raise OptionError(f"one of {', '.join(_WHICH)} says what to read; {found} is given")
    return Which(
        topics=given.read("subscribe", topics, ()),
        pattern=given.read("subscribePattern", pattern, None),
        assigned=given.read("assign", assigned, ()),
    )


def _login(given: _Given) -> Login:
    if given.has(USER) != given.has(PASSWORD):
        raise OptionError(f"{USER} and {PASSWORD} belong together")
    return Login(given.read(USER, str, "guest"), given.read(PASSWORD, str, "guest"))


def _address(given: _Given) -> Address:
    bootstrap = given.read(BOOTSTRAP, servers, None)
    if bootstrap is None:
        raise OptionError(f"{BOOTSTRAP} is missing: the broker's address, such as localhost:9092")
    properties = [(name, given.read(f"kafka.{name}", str, None)) for name in SECURITY_PROPERTIES]
    said = tuple((name, value) for name, value in properties if value is not None)
    return Address(bootstrap, said, given.read(CLIENT_ID, short, "entrepot-spark"))
