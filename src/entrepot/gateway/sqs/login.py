"""Who sends a request.

With authentication on, a client of AWS has one of the access keys of a user, and its signature is
checked. Without one, the access key may be the name of a user, and the session token, which
clients send as it is, the password; tools that speak HTTP may use its Basic scheme. With
authentication off, everybody on this machine is the guest, whatever the access key.
"""

from __future__ import annotations

from hashlib import sha256

from entrepot.broker.access import Principal
from entrepot.broker.login import GUEST, LoginPolicy, LoginRefused, Origin
from entrepot.broker.turns import Turns
from entrepot.core.limits import KIB
from entrepot.core.steps import Steps
from entrepot.gateway.http.browser import is_foreign
from entrepot.gateway.http.login import is_addressed_here, log_in
from entrepot.wire.http.request import HttpError, Request
from entrepot.wire.sqs import signature
from entrepot.wire.sqs.errors import SqsError
from entrepot.wire.sqs.signature import Signature

REGION = "us-east-1"  # For a client that names none.

_STEP_BYTES = 256 * KIB  # Of a body; hashed at once.


async def identify(
    policy: LoginPolicy, request: Request, peer_host: str, turns: Turns, now_ms: int
) -> Principal:
    """Return who sent the request. Raises SqsError, late where a secret was wrong."""
    if is_foreign(request):
        raise SqsError("AccessDenied", "A page of another site may not send requests here.")
    authorization = request.headers.get("authorization", "")
    is_here = is_addressed_here(request)
    try:
        if not policy.asks_users:
            return await policy.by_password(GUEST, GUEST, Origin(peer_host, "none", is_here))
        if not authorization:
            raise SqsError("MissingAuthenticationToken", "Request is missing Authentication Token")
        if authorization.lower().startswith("basic "):
            return await log_in(policy, request, peer_host)
        found = signature.read(authorization)
        if policy.has_key(found.key_id):
            return await _by_signature(policy, request, found, peer_host, turns, now_ms)
        origin = Origin(peer_host, "session token", is_here)
        return await policy.by_password(found.key_id, _session_token(request), origin)
    except (HttpError, LoginRefused):
        text = "The security token included in the request is invalid."
        raise SqsError("InvalidClientTokenId", text) from None


async def _by_signature(
    policy: LoginPolicy,
    request: Request,
    found: Signature,
    peer_host: str,
    turns: Turns,
    now_ms: int,
) -> Principal:
    signature.check_time(found, request.headers, now_ms)
    body_sha256 = await turns.run(_hashed(request.body))

    def is_signed_with(secret: str) -> bool:
        return signature.is_right(
            found, secret, request.method, request.target, request.headers, body_sha256
        )

    origin = Origin(peer_host, "signature", is_addressed_here(request))
    try:
        return await policy.by_signature(found.key_id, is_signed_with, origin)
    except LoginRefused:
        text = "The request signature we calculated does not match the signature you provided. "
        text += "Check your AWS Secret Access Key and signing method."
        raise SqsError("SignatureDoesNotMatch", text) from None


def _hashed(body: bytes) -> Steps[str]:
    digest = sha256()
    for start in range(0, len(body), _STEP_BYTES):
        digest.update(memoryview(body)[start : start + _STEP_BYTES])
        yield
    return digest.hexdigest()


def region_of(request: Request) -> str:
    """Return the region that the client was set to."""
    try:
        return signature.read(request.headers.get("authorization", "")).region
    except SqsError:
        return REGION


def service_of(request: Request) -> str:
    """Return the service that the client means; nothing if it does not say."""
    try:
        return signature.read(request.headers.get("authorization", "")).service
    except SqsError:
        return ""


def _session_token(request: Request) -> str:
    token = request.headers.get("x-amz-security-token", "")
    try:
        return token.encode("latin-1").decode()
    except UnicodeDecodeError:
        return token
