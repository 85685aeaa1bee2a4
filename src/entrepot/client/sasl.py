"""Saying who we are: a login on a fresh connection, with PLAIN or SCRAM."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_authenticate.v2.response import SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse

from entrepot.client.errors import BadAnswer, check
from entrepot.core.clock import SystemEntropy
from entrepot.core.scram import Mechanism
from entrepot.wire.sasl import PLAIN, SaslError, ScramClient, plain_token

if TYPE_CHECKING:
    from entrepot.client.connection import Connection

_NONCE_BYTES = 18


@dataclass(frozen=True, slots=True)
class Credentials:
    user: str
    password: str = field(repr=False)
    mechanism: str = Mechanism.SHA_512.value


async def log_in(connection: Connection, credentials: Credentials, timeout_s: float) -> None:
    """Raises Refused when the broker does not know us, BadAnswer when it is not the broker."""
    about = f"login of {credentials.user}"
    handshake = SaslHandshakeRequest(mechanism=credentials.mechanism)
    answer = await connection.ask(handshake, SaslHandshakeResponse, timeout_s)
    check(answer.error_code, about)

    async def say(token: bytes) -> bytes:
        request = SaslAuthenticateRequest(auth_bytes=token)
        answer = await connection.ask(request, SaslAuthenticateResponse, timeout_s)
        check(answer.error_code, about, answer.error_message)
        return answer.auth_bytes

    if credentials.mechanism == PLAIN:
        await say(plain_token(credentials.user, credentials.password))
        return
    nonce = b64encode(SystemEntropy().token(_NONCE_BYTES)).decode()
    mechanism = Mechanism(credentials.mechanism)
    scram = ScramClient(mechanism, credentials.user, credentials.password, nonce)
    challenge = await say(scram.first())
    try:
        answer_to_it = scram.answer(challenge)
        scram.check(await say(answer_to_it))
    except SaslError as error:
        raise BadAnswer(f"{about}: {error}") from None
