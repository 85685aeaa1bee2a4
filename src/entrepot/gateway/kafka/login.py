"""Runs the SASL login of a connection.

Before the login a client may send ApiVersions and SaslHandshake only, then SaslAuthenticate;
after a failure the connection is closed. The `SERVED` table lists what is allowed in each state.
The broker's login policy (`broker/login.py`) decides whether the login succeeds.
"""

from __future__ import annotations

from enum import Enum

from entrepot.broker.access import Principal
from entrepot.broker.login import Challenge, LoginPolicy, LoginRefused, Origin
from entrepot.core.scram import Mechanism
from entrepot.wire.kafka.api import Api
from entrepot.wire.sasl import MECHANISMS, PLAIN, SaslError, ScramServer, read_plain


class LoginState(Enum):
    STRANGER = "stranger"
    BEGUN = "begun"  # The mechanism is chosen.
    CHALLENGED = "challenged"  # The first of two SCRAM messages was answered.
    FAILED = "failed"


# The APIs that are served in each state. Any other one closes the connection.
SERVED = {
    LoginState.STRANGER: (Api.API_VERSIONS, Api.SASL_HANDSHAKE),
    LoginState.BEGUN: (Api.API_VERSIONS, Api.SASL_AUTHENTICATE),
    LoginState.CHALLENGED: (Api.SASL_AUTHENTICATE,),
    LoginState.FAILED: (),
}


class Login:
    def __init__(self, policy: LoginPolicy, host: str) -> None:
        self._policy = policy
        self._host = host
        self.mechanism = ""
        self._user = ""  # The user name that the client sent.
        self._scram: ScramServer | None = None
        self._challenge: Challenge | None = None  # After the first message of a SCRAM exchange.
        self.state = LoginState.STRANGER
        self.failure = ""  # For the log. Never has a password.

    def serves(self, api_key: int) -> bool:
        return api_key in SERVED[self.state]

    def begin(self, mechanism: str) -> bool:
        """Begin the login with a mechanism. Returns False if it is not supported."""
        if mechanism not in MECHANISMS:
            self._fail(f"unknown SASL mechanism {mechanism[:100]!r}")
            return False
        self.mechanism = mechanism
        if mechanism != PLAIN:
            self._scram = ScramServer(Mechanism(mechanism), self._policy.nonce())
        self.state = LoginState.BEGUN
        return True

    async def take(self, token: bytes) -> tuple[bytes, Principal | None]:
        """Process a message of the client. Returns the answer and, once the login is done, the
        principal. Raises LoginRefused."""
        origin = Origin(self._host, self.mechanism)
        try:
            return await self._answer(token, origin)
        except LoginRefused as refused:
            self._fail(str(refused))
            raise

    async def _answer(self, token: bytes, origin: Origin) -> tuple[bytes, Principal | None]:
        try:
            if self._scram is not None:
                return await self._take_scram(self._scram, token, origin)
            self._user, password = read_plain(token)
            return b"", await self._policy.by_password(self._user, password, origin)
        except SaslError as error:
            await self._policy.refuse(self._user, str(error), origin)

    async def _take_scram(
        self, scram: ScramServer, token: bytes, origin: Origin
    ) -> tuple[bytes, Principal | None]:
        if self._challenge is None:
            self._user = scram.first(token)
            self._challenge = self._policy.challenge(self._user, Mechanism(self.mechanism))
            self.state = LoginState.CHALLENGED
            return scram.challenge(self._challenge.verifier), None
        exchanged, proof = scram.proof(token)
        principal = await self._policy.by_proof(self._challenge, exchanged, proof, origin)
        return scram.signature(exchanged), principal

    def _fail(self, failure: str) -> None:
        self.state, self.failure = LoginState.FAILED, failure
