"""Topics and settings, made and unmade through the cluster's controller.

Verbs that take many topics answer for each: `None` where it is done, or why not. A
verb repeated after a lost connection may find its work done, and then says so: a
topic "exists already".
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from kio.schema.alter_partition_reassignments.v1.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kio.schema.alter_partition_reassignments.v1.response import (
    AlterPartitionReassignmentsResponse,
)
from kio.schema.create_partitions.v3.request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kio.schema.create_partitions.v3.response import CreatePartitionsResponse
from kio.schema.create_topics.v7.request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kio.schema.create_topics.v7.response import CreateTopicsResponse
from kio.schema.delete_records.v2.request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kio.schema.delete_records.v2.response import DeleteRecordsResponse
from kio.schema.delete_topics.v5.request import DeleteTopicsRequest
from kio.schema.delete_topics.v5.response import DeleteTopicsResponse
from kio.schema.describe_configs.v4.request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from kio.schema.describe_configs.v4.response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from kio.schema.errors import ErrorCode
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.incremental_alter_configs.v1.response import IncrementalAlterConfigsResponse
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i16, i32, i64

from entrepot.client.client import Client, TopicPartition, by_topic, milliseconds
from entrepot.client.cluster import TopicInfo
from entrepot.client.errors import Refused, check

TIMEOUT_MS = 30_000

_SET, _DELETE = i8(0), i8(1)
_SOURCES = (  # As the protocol numbers them, from 1 on.
    "DYNAMIC_TOPIC_CONFIG",
    "DYNAMIC_BROKER_CONFIG",
    "DYNAMIC_DEFAULT_BROKER_CONFIG",
    "STATIC_BROKER_CONFIG",
    "DEFAULT_CONFIG",
    "DYNAMIC_BROKER_LOGGER_CONFIG",
    "DYNAMIC_CLIENT_METRICS_CONFIG",
    "DYNAMIC_GROUP_CONFIG",
)


@dataclass(frozen=True, slots=True)
class NewTopic:
    name: str
    partitions: int = -1  # -1: as the broker likes, here and below.
    replication_factor: int = -1
    settings: Mapping[str, str] = field(default_factory=dict)


class ResourceType(IntEnum):
    """What a setting is of, as the protocol numbers it."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    value: str | None
    source: str  # Who said so, in Kafka's words.
    is_sensitive: bool = False
    synonyms: "tuple[Setting, ...]" = ()  # Where the value may come from, the first that has it.

    @property
    def is_default(self) -> bool:
        """Neither the topic nor the broker's configuration says anything."""
        return self.source == "DEFAULT_CONFIG"

    @property
    def is_of_topic(self) -> bool:
        return self.source == "DYNAMIC_TOPIC_CONFIG"


class Admin:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._cluster = client.cluster

    async def ensure_topic(self, topic: NewTopic) -> None:
        """Create it unless it is there, whatever it is like then."""
        try:
            await self._cluster.topic(topic.name)
        except Refused as error:
            if error.code is not ErrorCode.unknown_topic_or_partition:
                raise
            refused = (await self.create_topics([topic]))[topic.name]
            if refused is not None and refused.code is not ErrorCode.topic_already_exists:
                raise refused from None

    async def create_topics(self, topics: Iterable[NewTopic]) -> dict[str, Refused | None]:
        request = CreateTopicsRequest(
            topics=tuple(
                CreatableTopic(
                    name=TopicName(topic.name),
                    num_partitions=i32(topic.partitions),
                    replication_factor=i16(topic.replication_factor),
                    assignments=(),
                    configs=tuple(
                        CreatableTopicConfig(name=name, value=value)
                        for name, value in topic.settings.items()
                    ),
                )
                for topic in topics
            ),
            timeout=milliseconds(TIMEOUT_MS),
        )

        async def attempt() -> dict[str, Refused | None]:
            answer = await self._cluster.ask_controller(request, CreateTopicsResponse)
            return {
                topic.name: _refused(topic.error_code, topic.name, topic.error_message)
                for topic in answer.topics
            }

        return await self._change(attempt)

    async def delete_topics(self, names: Iterable[str]) -> dict[str, Refused | None]:
        request = DeleteTopicsRequest(
            topic_names=tuple(map(TopicName, names)), timeout=milliseconds(TIMEOUT_MS)
        )

        async def attempt() -> dict[str, Refused | None]:
            answer = await self._cluster.ask_controller(request, DeleteTopicsResponse)
            return {
                topic.name: _refused(topic.error_code, topic.name, topic.error_message)
                for topic in answer.responses
            }

        return await self._change(attempt)

    async def create_partitions(self, counts: Mapping[str, int]) -> dict[str, Refused | None]:
        """Grow these topics to so many partitions."""
        request = CreatePartitionsRequest(
            topics=tuple(
                CreatePartitionsTopic(name=TopicName(name), count=i32(count), assignments=None)
                for name, count in counts.items()
            ),
            timeout=milliseconds(TIMEOUT_MS),
            validate_only=False,
        )

        async def attempt() -> dict[str, Refused | None]:
            answer = await self._cluster.ask_controller(request, CreatePartitionsResponse)
            return {
                topic.name: _refused(topic.error_code, topic.name, topic.error_message)
                for topic in answer.results
            }

        return await self._change(attempt)

    async def describe(self, names: Iterable[str] | None = None) -> list[TopicInfo | Refused]:
        """These topics or all, as the cluster sees them now."""
        names = None if names is None else list(names)
        return await self._cluster.retry(lambda: self._cluster.describe(names))

    async def settings(
        self, names: Iterable[str], *, of: ResourceType = ResourceType.TOPIC
    ) -> dict[str, list[Setting]]:
        """Everything a topic or a broker may be set to, with the values in force."""
        request = DescribeConfigsRequest(
            resources=tuple(
                DescribeConfigsResource(
                    resource_type=i8(of), resource_name=name, configuration_keys=None
                )
                for name in names
            ),
            include_synonyms=True,
        )

        async def attempt() -> dict[str, list[Setting]]:
            answer = await self._cluster.ask(request, DescribeConfigsResponse)
            found = {}
            for result in answer.results:
                name = result.resource_name
                check(result.error_code, f"{of.name.lower()} {name}", result.error_message)
                found[name] = [_setting(each) for each in result.configs]
            return found

        return await self._cluster.retry(attempt)

    async def alter_settings(
        self,
        name: str,
        put: Mapping[str, str],
        remove: Iterable[str] = (),
        *,
        of: ResourceType = ResourceType.TOPIC,
    ) -> None:
        """Change some settings and give others their defaults back; leave the rest."""
        changes = [AlterableConfig(name=k, config_operation=_SET, value=v) for k, v in put.items()]
        changes += [AlterableConfig(name=k, config_operation=_DELETE, value=None) for k in remove]
        resource = AlterConfigsResource(
            resource_type=i8(of), resource_name=name, configs=tuple(changes)
        )
        request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)

        async def attempt() -> None:
            answer = await self._cluster.ask_controller(request, IncrementalAlterConfigsResponse)
            for each in answer.responses:
                check(each.error_code, f"{of.name.lower()} {name}", each.error_message)

        await self._cluster.retry(attempt)

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Forget what is before these offsets (-1: everything); the logs' new first offsets."""

        async def ask(leader: int, wanted: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
            request = DeleteRecordsRequest(
                topics=tuple(
                    DeleteRecordsTopic(
                        name=TopicName(topic),
                        partitions=tuple(
                            DeleteRecordsPartition(partition_index=i32(p), offset=i64(o))
                            for p, o in partitions
                        ),
                    )
                    for topic, partitions in by_topic(wanted)
                ),
                timeout=milliseconds(TIMEOUT_MS),
            )
            answer = await self._cluster.ask(request, DeleteRecordsResponse, node=leader)
            found = {}
            for topic in answer.topics:
                for each in topic.partitions:
                    name = TopicPartition(topic.name, each.partition_index)
                    check(each.error_code, name)
                    found[name] = int(each.low_watermark)
            return found

        return await self._client.per_leader(offsets, ask)

    async def _change(
        self, attempt: Callable[[], Awaitable[dict[str, Refused | None]]]
    ) -> dict[str, Refused | None]:
        """Repeat it when the controller is elsewhere; then what we knew of topics is old."""

        async def checked() -> dict[str, Refused | None]:
            answers = await attempt()
            for refused in answers.values():
                if refused is not None and refused.code is ErrorCode.not_controller:
                    raise refused
            return answers

        answers = await self._cluster.retry(checked)
        self._cluster.forget()
        return answers

    async def reassign(
        self, moves: Mapping[tuple[str, int], Sequence[int]]
    ) -> dict[tuple[str, int], Refused]:
        """Begin to move partitions, each (topic, number), to these nodes. Return which were
        refused, and why."""
        topics: dict[str, list[ReassignablePartition]] = {}
        for (topic, number), nodes in moves.items():
            row = ReassignablePartition(
                partition_index=i32(number), replicas=tuple(map(BrokerId, nodes))
            )
            topics.setdefault(topic, []).append(row)
        request = AlterPartitionReassignmentsRequest(
            timeout=milliseconds(TIMEOUT_MS),
            topics=tuple(
                ReassignableTopic(name=TopicName(name), partitions=tuple(rows))
                for name, rows in topics.items()
            ),
        )
        answer = await self._cluster.ask_controller(request, AlterPartitionReassignmentsResponse)
        check(answer.error_code, "cluster", answer.error_message)
        return {
            (topic.name, row.partition_index): Refused(row.error_code, "", row.error_message)
            for topic in answer.responses
            for row in topic.partitions
            if row.error_code is not ErrorCode.none
        }


def _setting(entry: DescribeConfigsResourceResult) -> Setting:
    return Setting(
        name=entry.name,
        value=entry.value,
        source=_source(entry.config_source),
        is_sensitive=entry.is_sensitive,
        synonyms=tuple(
            Setting(each.name, each.value, _source(each.source)) for each in entry.synonyms
        ),
    )


def _source(number: int) -> str:
    return _SOURCES[number - 1] if 0 < number <= len(_SOURCES) else "UNKNOWN"


def _refused(code: ErrorCode, name: str, message: str | None) -> Refused | None:
    return None if code is ErrorCode.none else Refused(code, f"topic {name}", message)
