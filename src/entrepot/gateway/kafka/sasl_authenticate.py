"""SaslAuthenticate (key 36), v0 to v2: one message of a login, and the answer to it.

When the login is done the connection has a name. When it failed, the answer says so,
not why, and the connection is closed.

v1: how long the login lasts. It lasts as long as the connection.
"""

from datetime import timedelta

from kio.schema.errors import ErrorCode
from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_authenticate.v2.response import SaslAuthenticateResponse
from kio.static.primitive import i64Timedelta

from entrepot.gateway.kafka.context import Context
from entrepot.wire.sasl import SaslError

_UNLIMITED = i64Timedelta.parse(timedelta())


async def handle(context: Context, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    if context.login is None:
        return _failed(ErrorCode.illegal_sasl_state, "there is no login under way")
    try:
        token, user = await context.login.take(request.auth_bytes)
    except SaslError:
        return _failed(
            ErrorCode.sasl_authentication_failed, "Authentication failed: wrong user or password"
        )
    if user is not None:
        context.principal, context.login = f"User:{user}", None
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
