"""What a user says to the source and the sink, read once and checked.

Names and meanings are those of Spark's Kafka source, so that one can take the place of
the other. A name that neither we nor Spark knows is refused, with the nearest that we do:
a misspelt option that is silently ignored reads the wrong data. Names come from Spark in
lower case; texts for people have them as they are documented.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeVar

from entrepot.client.client import EARLIEST, LATEST, TopicPartition
from entrepot.client.cluster import parse_bootstrap
from entrepot.client.errors import ClientError
from entrepot.client.queue_leases import Login
from entrepot.client.security import SECURITY_PROPERTIES
from entrepot.core.compression import Codec
from entrepot.core.errors import InvalidName
from entrepot.core.names import check_topic_name

BOOTSTRAP = "kafka.bootstrap.servers"
ISOLATION = "kafka.isolation.level"
DATA_DIRECTORY = "dataDirectory"
_CONNECTION = (BOOTSTRAP, *(f"kafka.{name}" for name in SECURITY_PROPERTIES))
_WHICH = ("subscribe", "subscribePattern", "assign")
SOURCE_OPTIONS = (
    *_CONNECTION,
    *_WHICH,
    ISOLATION,
    DATA_DIRECTORY,
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


@dataclass(frozen=True, slots=True)
class Which:
    """Of the three, one."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """Where to begin or to end: at offsets or times, the same for all partitions or for each.

    EARLIEST and LATEST are offsets, too.
    """

    option: str
    everywhere: int | None = None
    each: tuple[tuple[TopicPartition, int], ...] = ()
    is_time: bool = False


@dataclass(frozen=True, slots=True)
class SourceOptions:
    address: Address | None  # None: there is a data directory, and no broker.
    which: Which
    begin: Place
    end: Place  # For a stream, the latest.
    late_begin_is_latest: bool = False  # When nothing is as young as the time to begin at.
    committed: bool = True
    fail_on_data_loss: bool = True
    partitions_min: int | None = None
    range_rows_max: int | None = None
    trigger_rows_max: int | None = None
    with_headers: bool = False
    data_directory: str | None = None  # Of the broker, as the executors see it.


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
    given = _Given(options, SOURCE_OPTIONS)
    if is_stream and (ending := [name for name in _ENDING if given.has(name)]):
        raise OptionError(f"{ending[0]} is for batch queries: a stream has no end")
    begin = _place(given, "starting", LATEST if is_stream else EARLIEST)
    if not is_stream and not begin.is_time and LATEST in (begin.everywhere, *_numbers(begin)):
        raise OptionError(f"{begin.option}: a batch query that begins at the latest has no rows")
    end = _place(given, "ending", LATEST)
    if not end.is_time and EARLIEST in (end.everywhere, *_numbers(end)):
        raise OptionError(f"{end.option}: a query that ends at the earliest has no rows")
    strategy = given.read("startingOffsetsByTimestampStrategy", _choice("error", "latest"), "error")
    isolation = given.read(ISOLATION, _choice("read_committed", "read_uncommitted"), None)
    directory = given.read(DATA_DIRECTORY, _directory, None)
    return SourceOptions(
        address=_address(given) if given.has(BOOTSTRAP) or directory is None else None,
        which=_which(given),
        begin=begin,
        end=end,
        late_begin_is_latest=strategy == "latest",
        committed=isolation != "read_uncommitted",
        fail_on_data_loss=given.read("failOnDataLoss", _boolean, True),
        partitions_min=given.read("minPartitions", _positive, None),
        range_rows_max=given.read("maxRecordsPerPartition", _positive, None),
        trigger_rows_max=given.read("maxOffsetsPerTrigger", _positive, None),
        with_headers=includes_headers(options),
        data_directory=directory,
    )


def names_queue(options: Mapping[str, str]) -> bool:
    given = _Given(options, None)
    return given.has("queue") or given.has("exchange")


def read_queue_source(options: Mapping[str, str]) -> QueueSourceOptions:
    given = _Given(options, QUEUE_SOURCE_OPTIONS)
    http = given.read(HTTP, _server, None)
    if http is None:
        raise OptionError(
            f"{HTTP} is missing: the broker's management port, such as localhost:15672"
        )
    return QueueSourceOptions(
        address=_address(given),
        queue=given.read("queue", _topic, None),
        http=http,
        login=_login(given),
        trigger_rows_max=given.read("maxMessagesPerTrigger", _up_to(100_000), 10_000),
        lease_seconds=given.read("leaseSeconds", _up_to(43_200), 60),
        failures_max=given.read("maxFailures", _positive, None),
        fail_on_data_loss=given.read("failOnDataLoss", _boolean, True),
        partitions_min=given.read("minPartitions", _positive, None),
        range_rows_max=given.read("maxRecordsPerPartition", _positive, None),
        with_headers=includes_headers(options),
    )


def read_sink(options: Mapping[str, str]) -> SinkOptions:
    given = _Given(options, SINK_OPTIONS)
    includes_headers(options)
    named = given.read(COMPRESSION, _choice(*(codec.name.lower() for codec in Codec)), "none")
    return SinkOptions(
        address=_address(given),
        topic=given.read("topic", _topic, None),
        codec=Codec[named.upper()],
    )


def read_queue_sink(options: Mapping[str, str]) -> QueueSinkOptions:
    given = _Given(options, QUEUE_SINK_OPTIONS)
    includes_headers(options)
    if given.has("queue") and given.has("exchange"):
        raise OptionError("queue and exchange: one of them says where to write")
    amqp = given.read(AMQP, _server, None)
    if amqp is None:
        raise OptionError(f"{AMQP} is missing: the broker's port for AMQP, such as localhost:5672")
    return QueueSinkOptions(
        amqp=amqp,
        login=_login(given),
        queue=given.read("queue", _short, None),
        exchange=given.read("exchange", _short, None),
    )


def includes_headers(options: Mapping[str, str]) -> bool:
    return bool(_Given(options, None).read("includeHeaders", _boolean, False))


class _Given:
    """What was said, each taken with its own reader."""

    def __init__(self, options: Mapping[str, str], known: Iterable[str] | None) -> None:
        """Nothing is refused if `known` is None: then somebody else looks at the names."""
        self._options = {name.lower(): value for name, value in options.items()}
        if known is None:
            return
        names = {name.lower(): name for name in known}
        for name in self._options:
            if name in names or name in _OF_SPARK or name.startswith("spark."):
                continue
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


# --- single values


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{text!r} is not a number above 0")
    return int(text)


def _up_to(most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        number = _positive(text)
        if number > most:
            raise ValueError(f"{text} is more than {most}")
        return number

    return parse


def _choice(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in allowed:
            raise ValueError(f"{text!r} is not one of {', '.join(allowed)}")
        return text.lower()

    return parse


def _milliseconds(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{text!r} is not a time in milliseconds since 1970")
    return int(text)


def _servers(text: str) -> str:
    parse_bootstrap(text)
    return text


def _server(text: str) -> str:
    if len(parse_bootstrap(text)) > 1:
        raise ValueError(f"{text!r} is more than one address")
    return text


def _directory(text: str) -> str:
    if not text.startswith("/"):
        raise ValueError(
            f"{text!r} is not a whole path; executors work in directories of their own"
        )
    return text


def _topic(text: str) -> str:
    return check_topic_name(text.strip())


def _short(text: str) -> str:
    if not 0 < len(text.encode()) < 256:
        raise ValueError(f"{text!r} is not a name of 1 to 255 bytes")
    return text


def _topics(text: str) -> tuple[str, ...]:
    return tuple(sorted({_topic(name) for name in text.split(",")}))


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from None
    return text


# --- JSON


def _json(text: str, form: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"{text!r} is not JSON of the form {form}")
    return found


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    form = '{"topic": [0, 1]}'
    found = []
    for topic, partitions in _json(text, form).items():
        if not isinstance(partitions, list) or not all(_is_count(p) for p in partitions):
            raise ValueError(f"topic {topic} has no list of partitions; the form is {form}")
        found += [TopicPartition(check_topic_name(topic), partition) for partition in partitions]
    if not found:
        raise ValueError("no partition is named")
    return tuple(sorted(set(found)))


def _per_partition(text: str, least: int) -> tuple[tuple[TopicPartition, int], ...]:
    form = '{"topic": {"0": 23}}'
    found = []
    for topic, partitions in _json(text, form).items():
        if not isinstance(partitions, dict):
            raise ValueError(f"topic {topic} has no partitions; the form is {form}")
        for partition, number in partitions.items():
            if not partition.isdecimal() or not _is_count(number, least):
                raise ValueError(
                    f"{topic}: {json.dumps({partition: number})} is not a partition and a number "
                    f"from {least}; the form is {form}"
                )
            found.append((TopicPartition(topic, int(partition)), number))
    return tuple(sorted(found))


def _is_count(value: object, least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


# --- what belongs together

_ENDING = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")


def _place(given: _Given, side: str, otherwise: int) -> Place:
    """One time over a time for each partition, over offsets: Spark's order."""
    option = f"{side}Timestamp"
    if given.has(option):
        return Place(option, given.read(option, _milliseconds, None), is_time=True)
    option = f"{side}OffsetsByTimestamp"
    if given.has(option):
        each = given.read(option, lambda text: _per_partition(text, 0), ())
        return Place(option, each=each, is_time=True)
    option = f"{side}Offsets"
    said: Place = given.read(option, lambda text: _offsets(option, text), Place(option, otherwise))
    return said


def _offsets(option: str, text: str) -> Place:
    named = {"earliest": EARLIEST, "latest": LATEST}.get(text.strip().lower())
    if named is not None:
        return Place(option, named)
    if not text.lstrip().startswith("{"):
        raise ValueError(f"{text!r} is neither earliest nor latest nor JSON")
    return Place(option, each=_per_partition(text, EARLIEST))


def _numbers(place: Place) -> list[int]:
    return [number for _, number in place.each]


def _which(given: _Given) -> Which:
    named = [name for name in _WHICH if given.has(name)]
    if len(named) != 1:
        found = " and ".join(named) or "none"
        raise OptionError(f"one of {', '.join(_WHICH)} says what to read; {found} is given")
    return Which(
        topics=given.read("subscribe", _topics, ()),
        pattern=given.read("subscribePattern", _pattern, None),
        assigned=given.read("assign", _assigned, ()),
    )


def _login(given: _Given) -> Login:
    if given.has(USER) != given.has(PASSWORD):
        raise OptionError(f"{USER} and {PASSWORD} belong together")
    return Login(given.read(USER, str, "guest"), given.read(PASSWORD, str, "guest"))


def _address(given: _Given) -> Address:
    bootstrap = given.read(BOOTSTRAP, _servers, None)
    if bootstrap is None:
        raise OptionError(f"{BOOTSTRAP} is missing: the broker's address, such as localhost:9092")
    properties = [(name, given.read(f"kafka.{name}", str, None)) for name in SECURITY_PROPERTIES]
    said = tuple((name, value) for name, value in properties if value is not None)
    return Address(bootstrap, said)
