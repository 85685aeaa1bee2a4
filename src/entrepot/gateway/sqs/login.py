"""Who sends a request.

Clients of SQS sign requests with a secret that the server must know in clear. The broker knows
verifiers of passwords only, so it cannot check a signature, and does not. With authentication on,
the access key is the name of a user, and the session token, which clients send as it is, is the
password. Tools that speak HTTP may use its Basic scheme instead. With authentication off,
everybody on this machine is the guest, whatever the access key.
"""

from __future__ import annotations

import re

from entrepot.broker.access import Principal
from entrepot.broker.login import GUEST, LoginPolicy, LoginRefused, Origin
from entrepot.gateway.http.browser import is_foreign
from entrepot.gateway.http.login import is_addressed_here, log_in
from entrepot.wire.http.request import HttpError, Request
from entrepot.wire.sqs.errors import SqsError

REGION = "us-east-1"  # For a client that names none.

_CREDENTIAL = re.compile(r"AWS4-HMAC-SHA256 .*?Credential=([^/,\s]+)/[^/,]*/([A-Za-z0-9-]{1,40})/")
_MECHANISM = "session token"


async def identify(policy: LoginPolicy, request: Request, peer_host: str) -> Principal:
    """Return who sent the request. Raises SqsError, late where a password was given."""
    if is_foreign(request):
        raise SqsError("AccessDenied", "A page of another site may not send requests here.")
    authorization = request.headers.get("authorization", "")
    try:
        if policy.asks_users and authorization.lower().startswith("basic "):
            return await log_in(policy, request, peer_host)
        user, password = GUEST, GUEST
        if policy.asks_users:
            user, password = _access_key(authorization), _session_token(request)
        origin = Origin(peer_host, _MECHANISM, is_addressed_here(request))
        return await policy.by_password(user, password, origin)
    except (HttpError, LoginRefused):
        text = "The security token included in the request is invalid."
        if policy.asks_users:
            text += " The access key is the name of a user, and the session token the password."
        raise SqsError("InvalidClientTokenId", text) from None


def region_of(request: Request) -> str:
    """Return the region that the client was set to."""
    found = _CREDENTIAL.match(request.headers.get("authorization", ""))
    return REGION if found is None else found[2]


def _access_key(authorization: str) -> str:
    found = _CREDENTIAL.match(authorization)
    return "" if found is None else found[1]


def _session_token(request: Request) -> str:
    token = request.headers.get("x-amz-security-token", "")
    try:
        return token.encode("latin-1").decode()
    except UnicodeDecodeError:
        return token
