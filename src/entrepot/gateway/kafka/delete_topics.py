"""DeleteTopics (key 20), v1 to v6. Answered when the deletion is permanent.

v5: the answer has error messages. v6: topics are named by name or by id. A topic that comes twice
in a request is refused.
"""

from collections import Counter

from kio.schema.delete_topics.v5.request import DeleteTopicsRequest as DeleteTopicsRequestV5
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.delete_topics.v6.response import DeletableTopicResult, DeleteTopicsResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName

from entrepot.broker.access import Operation
from entrepot.broker.turns import gathered
from entrepot.core.errors import PeerError
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN, code_of
from entrepot.gateway.kafka.topics import topic_of


async def handle(
    context: Context, request: DeleteTopicsRequestV5 | DeleteTopicsRequest
) -> DeleteTopicsResponse:
    """Delete topics, all at the same time, so that they share a commit."""
    if isinstance(request, DeleteTopicsRequestV5):
        wanted = [DeleteTopicState(name=name, topic_id=None) for name in request.topic_names]
    else:
        wanted = list(request.topics)
    times = Counter(wanted)
    results = await gathered(_answer(context, each, times[each] == 1) for each in times)
    return DeleteTopicsResponse(throttle_time=NO_THROTTLE, responses=tuple(results))


async def _answer(
    context: Context, wanted: DeleteTopicState, is_alone: bool
) -> DeletableTopicResult:
    try:
        if not is_alone:
            raise PeerError("the topic is in the request twice")
        if (wanted.name is None) == (wanted.topic_id is None):
            raise PeerError("a topic is deleted by its name or by its id")
        key = wanted.topic_id if wanted.name is None else wanted.name
        topic = topic_of(context, Operation.DELETE, key)
        await context.broker.delete_topic(topic)
    except KNOWN as error:
        return DeletableTopicResult(
            name=wanted.name,
            topic_id=wanted.topic_id,
            error_code=code_of(error),
            error_message=str(error),
        )
    return DeletableTopicResult(
        name=TopicName(topic.name), topic_id=topic.id, error_code=ErrorCode.none
    )
