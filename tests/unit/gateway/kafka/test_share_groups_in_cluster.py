"""Share groups in a cluster: each request is refused as by Kafka where they are switched off."""

from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.errors import ErrorCode

from entrepot.gateway.kafka import api_versions
from entrepot.wire.kafka.api import Api
from tests.unit.gateway.kafka.node import Node, on_node
from tests.unit.gateway.kafka.sharing import beat, opened
from tests.unit.gateway.kafka.test_share_group_describe import describe
from tests.unit.gateway.kafka.test_share_group_offsets import alter, delete, group_of

REFUSED = ErrorCode.unsupported_version
WHY = "share groups are not served in a cluster yet"


@on_node()
async def test_requests_are_refused(node: Node) -> None:
    member = await opened(node, records=1)
    node.context.broker.cluster = object()  # type: ignore[assignment]
    told = await beat(node, member="n", topics=("t",))
    assert (told.error_code, told.error_message) == (REFUSED, WHY)
    fetched = await member.fetch()
    assert (fetched.error_code, fetched.error_message) == (REFUSED, WHY)
    assert (await member.acknowledge({})).error_code is REFUSED
    assert [each.error_code for each in describe(node, "g", "h")] == [REFUSED] * 2
    assert group_of(node, None).error_code is REFUSED
    assert (await alter(node, {("t", 0): 0})).error_code is REFUSED
    assert (await delete(node, "t")).error_code is REFUSED


@on_node()
async def test_what_is_announced(node: Node) -> None:
    asked = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    for cluster, expected in ((None, 1), (object(), 0)):
        node.context.broker.cluster = cluster  # type: ignore[assignment]
        told = api_versions.handle(node.context, asked)
        assert Api.SHARE_FETCH in [each.api_key for each in told.api_keys]
        names = [each.name for each in told.finalized_features]
        assert names.count("share.version") == expected
