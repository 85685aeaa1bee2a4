"""SaslHandshake (key 17), v0 and v1: choose the SASL mechanism of the login.

After v0 the messages of the mechanism would come without Kafka's headers. Only clients before
Kafka 1.0 do that, so v0 is answered with UNSUPPORTED_VERSION.
"""

from kio.schema.errors import ErrorCode
from kio.schema.sasl_handshake.v0.request import SaslHandshakeRequest as SaslHandshakeRequestV0
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse

from entrepot.gateway.kafka.context import Context
from entrepot.wire.sasl import MECHANISMS


def handle(
    context: Context, request: SaslHandshakeRequestV0 | SaslHandshakeRequest
) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=_begin(context, request), mechanisms=MECHANISMS)


def _begin(context: Context, request: SaslHandshakeRequestV0 | SaslHandshakeRequest) -> ErrorCode:
    if context.login is None:
        return ErrorCode.illegal_sasl_state
    if isinstance(request, SaslHandshakeRequestV0):
        return ErrorCode.unsupported_version
    if not context.login.begin(request.mechanism):
        return ErrorCode.unsupported_sasl_mechanism
    return ErrorCode.none
