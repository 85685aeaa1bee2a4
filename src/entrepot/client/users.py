"""Users and their passwords, through Kafka's SCRAM requests.

A password never leaves this process: the broker gets what SCRAM makes of it. A user has
a credential for each mechanism, and Kafka changes one of a user's in a request.
"""

from __future__ import annotations

from kio.schema.alter_user_scram_credentials.v0.request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kio.schema.alter_user_scram_credentials.v0.response import AlterUserScramCredentialsResponse
from kio.schema.describe_user_scram_credentials.v0.request import (
    DescribeUserScramCredentialsRequest,
)
from kio.schema.describe_user_scram_credentials.v0.response import (
    DescribeUserScramCredentialsResponse,
)
from kio.static.primitive import i8, i32

from entrepot.client.client import Client
from entrepot.client.errors import check
from entrepot.core import limits, scram
from entrepot.core.clock import SystemEntropy
from entrepot.core.scram import Mechanism

_CODES = {Mechanism.SHA_256: i8(1), Mechanism.SHA_512: i8(2)}
_MECHANISMS = {code: mechanism for mechanism, code in _CODES.items()}
_SALT_BYTES = 16


class UserAdmin:
    def __init__(self, client: Client) -> None:
        self._cluster = client.cluster

    async def all(self) -> dict[str, list[Mechanism]]:
        """Every user, and what they can log in with, besides PLAIN."""
        return {name: list(found) for name, found in (await self.iterations()).items()}

    async def iterations(self) -> dict[str, dict[Mechanism, int]]:
        """What is told of the users' credentials."""
        request = DescribeUserScramCredentialsRequest(users=None)

        async def attempt() -> dict[str, dict[Mechanism, int]]:
            answer = await self._cluster.ask(request, DescribeUserScramCredentialsResponse)
            check(answer.error_code, "users", answer.error_message)
            return {
                result.user: {
                    _MECHANISMS[info.mechanism]: int(info.iterations)
                    for info in result.credential_infos
                }
                for result in answer.results
            }

        return await self._cluster.retry(attempt)

    async def set_password(self, name: str, password: str) -> None:
        """Of a user who is there, or of a new one."""
        for mechanism in _CODES:
            await self.set_credential(name, mechanism, password)

    async def set_credential(
        self,
        name: str,
        mechanism: Mechanism,
        password: str,
        iterations: int = limits.SCRAM_ITERATIONS,
    ) -> None:
        """For this mechanism only."""
        salt = SystemEntropy().token(_SALT_BYTES)
        upsertion = ScramCredentialUpsertion(
            name=name,
            mechanism=_CODES[mechanism],
            iterations=i32(iterations),
            salt=salt,
            salted_password=scram.salted_password(mechanism, password, salt, iterations),
        )
        await self._alter(AlterUserScramCredentialsRequest(deletions=(), upsertions=(upsertion,)))

    async def delete(self, name: str, mechanisms: list[Mechanism]) -> None:
        for mechanism in mechanisms:
            deletion = ScramCredentialDeletion(name=name, mechanism=_CODES[mechanism])
            await self._alter(
                AlterUserScramCredentialsRequest(deletions=(deletion,), upsertions=())
            )

    async def _alter(self, request: AlterUserScramCredentialsRequest) -> None:
        async def attempt() -> None:
            answer = await self._cluster.ask_controller(request, AlterUserScramCredentialsResponse)
            for result in answer.results:
                check(result.error_code, f"user {result.user}", result.error_message)

        await self._cluster.retry(attempt)
