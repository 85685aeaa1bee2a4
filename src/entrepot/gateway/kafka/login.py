"""SASL: a connection's way from a stranger to somebody with a name.

A stranger may ask what is served and begin a handshake; who has begun may only go on
with it; who has failed is gone. When it is done the connection has no login any more.

Failed logins are answered at one time after the attempt, whatever was wrong with them,
so that the time does not tell whether there is such a user.
"""

from __future__ import annotations

import asyncio
from enum import Enum

from entrepot.broker.users import Users
from entrepot.core import limits
from entrepot.core.scram import Mechanism
from entrepot.wire.kafka.api import Api
from entrepot.wire.sasl import MECHANISMS, PLAIN, SaslError, ScramServer, read_plain


class State(Enum):
    STRANGER = "stranger"
    BEGUN = "begun"  # The mechanism is chosen.
    CHALLENGED = "challenged"  # Half of SCRAM is done.
    FAILED = "failed"


# What is served when. What is not in the table closes the connection.
SERVED = {
    State.STRANGER: (Api.API_VERSIONS, Api.SASL_HANDSHAKE),
    State.BEGUN: (Api.API_VERSIONS, Api.SASL_AUTHENTICATE),
    State.CHALLENGED: (Api.SASL_AUTHENTICATE,),
    State.FAILED: (),
}


class Login:
    def __init__(self, users: Users) -> None:
        self._users = users
        self._mechanism = ""
        self._user = ""  # Who it says it is.
        self._scram: ScramServer | None = None
        self.state = State.STRANGER
        self.failure = ""  # For the log. Never has a password.

    def serves(self, api_key: int) -> bool:
        return api_key in SERVED[self.state]

    def begin(self, mechanism: str) -> bool:
        """Whether that is a mechanism."""
        if mechanism not in MECHANISMS:
            self._fail(f"unknown SASL mechanism {mechanism[:100]!r}")
            return False
        self._mechanism = mechanism
        if mechanism != PLAIN:
            self._scram = ScramServer(Mechanism(mechanism), self._users.nonce())
        self.state = State.BEGUN
        return True

    async def take(self, token: bytes) -> tuple[bytes, str | None]:
        """What to say next, and who it is once that is known. Raises SaslError."""
        loop = asyncio.get_running_loop()
        answer_at = loop.time() + limits.LOGIN_FAILURE_MS / 1_000
        try:
            if self._scram is not None:
                return self._take_scram(self._scram, token)
            return await self._take_plain(token)
        except SaslError as error:
            await asyncio.sleep(answer_at - loop.time())
            self._fail(f"login of {self._user[:100]!r} with {self._mechanism} failed: {error}")
            raise

    async def _take_plain(self, token: bytes) -> tuple[bytes, str]:
        self._user, password = read_plain(token)
        if not await self._users.knows(self._user, password):
            raise SaslError("wrong user or password")
        return b"", self._user

    def _take_scram(self, scram: ScramServer, token: bytes) -> tuple[bytes, str | None]:
        if self.state is State.CHALLENGED:
            return scram.finish(token), self._user
        self._user = scram.first(token)
        kept = self._users.verifier(self._user, Mechanism(self._mechanism))
        self.state = State.CHALLENGED
        return scram.challenge(kept), None

    def _fail(self, failure: str) -> None:
        self.state, self.failure = State.FAILED, failure
