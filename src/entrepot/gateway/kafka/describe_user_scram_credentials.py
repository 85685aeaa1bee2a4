"""DescribeUserScramCredentials (key 50), v0: the users with SCRAM credentials, and their
mechanisms and iteration counts.

A request without users asks for all. Hashes of passwords are never sent.
"""

from collections import Counter
from collections.abc import Mapping

from kio.schema.describe_user_scram_credentials.v0.request import (
    DescribeUserScramCredentialsRequest,
)
from kio.schema.describe_user_scram_credentials.v0.response import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from kio.schema.errors import ErrorCode
from kio.static.primitive import i8, i32

from entrepot.broker.access import Operation
from entrepot.core.errors import PeerError
from entrepot.core.scram import Mechanism
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.refusal import Refusal, check_on_cluster, reason_of

CODES: Mapping[Mechanism, i8] = {Mechanism.SHA_256: i8(1), Mechanism.SHA_512: i8(2)}

Result = DescribeUserScramCredentialsResult


def handle(
    context: Context, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    code, text, results = ErrorCode.none, None, list[Result]()
    try:
        check_on_cluster(context, Operation.DESCRIBE)
        times = Counter(user.name for user in request.users or ())
        names = times or context.broker.users.names()
        results = [_answer(context, name, times[name] <= 1) for name in names]
    except PeerError as error:
        code, text = reason_of(error)
    return DescribeUserScramCredentialsResponse(
        throttle_time=NO_THROTTLE, error_code=code, error_message=text, results=tuple(results)
    )


def _answer(context: Context, name: str, is_alone: bool) -> Result:
    try:
        if not is_alone:
            raise Refusal(ErrorCode.duplicate_resource, "the user is in the request twice")
        user = context.broker.users.get(name)
        if user is None:
            raise Refusal(ErrorCode.resource_not_found, f"there is no user {name!r}")
    except Refusal as error:
        code, text = reason_of(error)
        return Result(user=name, error_code=code, error_message=text, credential_infos=())
    return Result(
        user=name,
        error_code=ErrorCode.none,
        error_message=None,
        credential_infos=tuple(
            CredentialInfo(mechanism=CODES[mechanism], iterations=i32(kept.iterations))
            for mechanism, kept in user.verifiers.items()
        ),
    )
