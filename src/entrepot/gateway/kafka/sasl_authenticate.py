"""SaslAuthenticate (key 36), v0 to v2: one message of a SASL login, and its answer.

After a successful login the connection has a user. After a failed one the answer does not say
why, and the connection is closed.

v1: the lifetime of the login, which is that of the connection.
"""

from datetime import timedelta

from kio.schema.errors import ErrorCode
from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_authenticate.v2.response import SaslAuthenticateResponse
from kio.static.primitive import i64Timedelta

from entrepot.broker.login import LoginRefused
from entrepot.gateway.kafka.context import Context

_UNLIMITED = i64Timedelta.parse(timedelta())


async def handle(context: Context, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    if context.login is None:
        return _failed(ErrorCode.illegal_sasl_state, "there is no login under way")
    try:
        token, principal = await context.login.take(request.auth_bytes)
    except LoginRefused:
        return _failed(
            ErrorCode.sasl_authentication_failed, "Authentication failed: wrong user or password"
        )
    if principal is not None:
        context.principal, context.login = principal, None
    return SaslAuthenticateResponse(
        error_code=ErrorCode.none,
        error_message=None,
        auth_bytes=token,
        session_lifetime=_UNLIMITED,
    )


def _failed(code: ErrorCode, text: str) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=code, error_message=text, auth_bytes=b"", session_lifetime=_UNLIMITED
    )
