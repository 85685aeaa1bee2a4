"""ApiVersions (key 18), v0 to v4: what this broker serves.

A client asks in the newest version it knows. One we do not know is answered in v0
with UNSUPPORTED_VERSION and the whole list, so that it can ask again. From v3 on the
answer has features: which transactions there are, that groups may be modern, and that
they may share.
"""

from typing import Any

from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.api_versions.v4.response import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from kio.schema.errors import ErrorCode
from kio.static.primitive import i16, i64

from entrepot.core.ports import Chunk
from entrepot.gateway.kafka import apis
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.transactions import TRANSACTION_VERSION
from entrepot.wire.kafka.api import Api, response_class
from entrepot.wire.kafka.frames import response_header, size_prefix
from entrepot.wire.kafka.layout import encode

# Name, the first version of it that there is, and the one in use. Before v4 of the answer
# clients take no first version of 0.
_FEATURES = (
    ("group.version", 1, 1),
    ("share.version", 1, 1),
    ("transaction.version", 1, TRANSACTION_VERSION),
)


def handle(context: Context, request: ApiVersionsRequest) -> ApiVersionsResponse:
    return _answer(ErrorCode.none)


def unsupported(correlation_id: int) -> list[Chunk]:
    """The whole frame: the header's version depends on ours, not on theirs."""
    layout: type[Any] = response_class(Api.API_VERSIONS, 0)
    body = encode(_answer(ErrorCode.unsupported_version), layout)
    head = response_header(Api.API_VERSIONS, 0, correlation_id)
    return [size_prefix(len(head) + len(body)) + head, body]


def _answer(error: ErrorCode) -> ApiVersionsResponse:
    served = (
        ApiVersion(
            api_key=i16(api),
            min_version=i16(_announced_first(api)),
            max_version=i16(api.version_last),
        )
        for api in apis.SERVED
    )
    return ApiVersionsResponse(
        error_code=error,
        api_keys=tuple(served),
        throttle_time=NO_THROTTLE,
        supported_features=tuple(
            SupportedFeatureKey(name=name, min_version=i16(first), max_version=i16(level))
            for name, first, level in _FEATURES
        ),
        finalized_features_epoch=i64(0),
        finalized_features=tuple(
            FinalizedFeatureKey(
                name=name, min_version_level=i16(level), max_version_level=i16(level)
            )
            for name, _, level in _FEATURES
        ),
    )


def _announced_first(api: Api) -> int:
    """librdkafka takes codecs to need an old Produce, so, like Kafka 4, we announce v0.

    No client uses it: a version before 3 cannot carry record batches, and is refused.
    """
    return 0 if api is Api.PRODUCE else api.version_first
