"""Topics as frames: raw records, or the fields of JSON; and what becomes of poison.

A value that does not parse must not stop a pipeline, and must not vanish. Which records
those are is decided by the record alone, so the pipeline leaves them out, and a query of
its own, which reads the same topic and keeps nothing but them, writes them to the
dead-letter topic, once, with the reason. Neither waits for the other.
"""

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructField, StructType

from entrepot.spark.errors import PipelineError
from entrepot.spark.options import BOOTSTRAP, HTTP, PASSWORD, USER, Address
from entrepot.spark.pipelines.declaring import Queue, Topic

RAW = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
HEADERS = "headers array<struct<key: string, value: binary>>"
BAD = "_bad"  # Where Spark puts the text that it cannot parse.
POISON = "poison"  # What the counts of it are called.
REASON_LENGTH_MAX = 300
_ROWS_MAX = "maxOffsetsPerTrigger"


def options_of(address: Address) -> dict[str, str]:
    named = {f"kafka.{name}": value for name, value in address.properties}
    return {BOOTSTRAP: address.bootstrap} | named


def check_schema(topic: Topic) -> StructType:
    assert topic.schema is not None
    try:
        schema = StructType.fromDDL(topic.schema)
    except Exception as error:
        first = str(error).strip().splitlines()[0]
        raise PipelineError(f"topic {topic.name}: schema {topic.schema!r}: {first}") from None
    if clash := [name for name in schema.fieldNames() if name in (BAD, *_BESIDE)]:
        raise PipelineError(f"topic {topic.name}: schema: the name {clash[0]} is taken")
    return schema


@dataclass(frozen=True, slots=True)
class QueueAddress:
    """Where queues are read, at the management port, and written, over AMQP; and by whom."""

    http: str = "127.0.0.1:15672"
    amqp: str = "127.0.0.1:5672"
    user: str = "guest"
    password: str = "guest"

    @property
    def login(self) -> dict[str, str]:
        return {USER: self.user, PASSWORD: self.password}


class Source:
    """How topics are read in one run: from which broker, as a stream or as a table."""

    def __init__(
        self, spark: SparkSession, address: Address, *, is_stream: bool, rows_max: int | None = None
    ) -> None:
        self._spark = spark
        self._said = options_of(address)
        self._is_stream = is_stream
        if is_stream and rows_max is not None:
            self._said[_ROWS_MAX] = str(rows_max)

    def frame(self, topic: Topic, number: int, places: Mapping[str, str]) -> DataFrame:
        """Return the columns that the pipeline's function gets. `number` tells inputs apart."""
        if topic.schema is None:
            return self._records(topic, places, f"{RAW}, {HEADERS}")
        fields = check_schema(topic).fieldNames()
        parsed = _parsed(self._records(topic, places, RAW), topic)
        # The count also keeps the filter where it is: moved down, it would parse once more.
        counted = parsed.observe(f"{POISON} {number}", F.count_if(_is_poison()).alias(POISON))
        good = counted.where(~_is_poison())
        beside = [F.expr(text).alias(name) for name, text in _BESIDE.items()]
        return good.select(
            *(F.col("parsed").getField(name).alias(name) for name in fields), *beside
        )

    def messages(self, queue: Queue, at: QueueAddress) -> DataFrame:
        """Return a queue's messages, with the columns of raw records."""
        said = {"queue": queue.name, HTTP: at.http, "includeHeaders": "true"} | at.login
        said |= {name: value for name, value in self._said.items() if name != _ROWS_MAX}
        if _ROWS_MAX in self._said:
            said["maxMessagesPerTrigger"] = self._said[_ROWS_MAX]
        reader = self._spark.readStream.format("entrepot").options(**said)
        return reader.schema(f"{RAW}, {HEADERS}").load()

    def dead_letters(self, topic: Topic) -> DataFrame:
        """Return what does not parse, as records for the dead-letter topic."""
        schema = check_schema(topic)
        records = self._records(topic, {}, f"{RAW}, {HEADERS}")
        poison = _parsed(records, topic).where(_is_poison())
        kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
        reason = _reason(F.col("text"), F.to_json("parsed"), F.lit(json.dumps(kinds)))
        more = {"reason": reason, "topic": "topic", "partition": "partition", "offset": "offset"}
        return poison.select(
            "key",
            "value",
            F.concat(_or_none("headers"), *map(_header, more.items())).alias("headers"),
        )

    def _records(self, topic: Topic, places: Mapping[str, str], columns: str) -> DataFrame:
        reader = self._spark.readStream if self._is_stream else self._spark.read
        which = "subscribePattern" if topic.pattern else "subscribe"
        said = {which: topic.name, "startingOffsets": "earliest"} | self._said | dict(places)
        if HEADERS in columns:
            said["includeHeaders"] = "true"
        return reader.format("entrepot").options(**said).schema(columns).load()


_BESIDE = {
    "_key": "cast(key as string)",
    "_topic": "topic",
    "_partition": "partition",
    "_offset": "offset",
    "_timestamp": "timestamp",
}


def _parsed(records: DataFrame, topic: Topic) -> DataFrame:
    """Add the text, and what Spark parses of it. What is beyond the object is not looked at."""
    schema = StructType([*check_schema(topic).fields, StructField(BAD, StringType())])
    said = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": BAD}
    with_text = records.withColumn("text", F.col("value").cast("string"))
    return with_text.withColumn("parsed", F.from_json("text", schema, said))


def _is_poison() -> Column:
    """Tell what does not parse. No value is no poison: it says that a key is gone."""
    bad = F.col(f"parsed.{BAD}").isNotNull()
    return F.col("value").isNotNull() & (F.col("parsed").isNull() | bad)


def _or_none(headers: str) -> Column:
    return F.coalesce(F.col(headers), F.expr(f"cast(array() as {HEADERS.split(' ', 1)[1]})"))


def _header(pair: tuple[str, Any]) -> Column:
    name, value = pair
    text = (F.col(value) if isinstance(value, str) else value).cast("string").cast("binary")
    return F.array(F.struct(F.lit(f"dead-letter.{name}").alias("key"), text.alias("value")))


def reason(text: str, parsed: str | None, kinds: str) -> str:
    """Say in words why a text is not what the schema says."""
    try:
        document = json.loads(text)
    except ValueError as error:
        return f"not JSON: {error}"[:REASON_LENGTH_MAX]
    except RecursionError:
        return "not JSON: nested too deep"
    if not isinstance(document, dict):
        return f"JSON, but not an object: {text}"[:REASON_LENGTH_MAX]
    understood = json.loads(parsed or "{}")
    wrong = [
        f"{name} is not {kind}: {json.dumps(document[name])}"
        for name, kind in json.loads(kinds).items()
        if document.get(name) is not None and understood.get(name) is None
    ]
    return ("; ".join(wrong) or "a part of it is not as the schema says")[:REASON_LENGTH_MAX]


# Without the annotations, which Spark would read as those of a function on columns.
_reason = F.udf(lambda *said: reason(*said), StringType())


def digest(topic: Topic) -> str:
    """Return a name that tells apart readers of a topic that have different schemas."""
    return f"{zlib.crc32(f'{topic.name} {topic.schema}'.encode()):08x}"
