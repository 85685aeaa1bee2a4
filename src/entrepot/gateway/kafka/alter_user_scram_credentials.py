"""AlterUserScramCredentials (key 51), v0: create users, change their passwords, delete them.

The client sends the salted password, never the password itself. Answered when all changes are
permanent. A request may name a user's credential only once. A user whose last SCRAM credential is
deleted is deleted.
"""

from collections import Counter

from kio.schema.alter_user_scram_credentials.v0.request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kio.schema.alter_user_scram_credentials.v0.response import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from kio.schema.errors import ErrorCode

from entrepot.broker.access import Operation
from entrepot.broker.users import User, Users, check_user_name, user_deleted_record, user_record
from entrepot.core import limits, scram
from entrepot.core.errors import InvalidName, PeerError
from entrepot.core.record import Record
from entrepot.core.scram import Mechanism
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.describe_user_scram_credentials import CODES
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.refusal import Refusal, check_on_cluster, reason_of

CredentialChange = ScramCredentialDeletion | ScramCredentialUpsertion

_MECHANISMS = {code: mechanism for mechanism, code in CODES.items()}


async def handle(
    context: Context, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    changes: list[CredentialChange] = [*request.deletions, *request.upsertions]
    times = Counter(change.name for change in changes)
    users = context.broker.users
    errors: dict[str, Exception] = {}
    records: dict[str, Record] = {}
    for change in changes:
        try:
            check_on_cluster(context, Operation.ALTER)
            if times[change.name] > 1:
                raise Refusal(ErrorCode.duplicate_resource, "the user is in the request twice")
            records[change.name] = _record(users, change)
        except PeerError as error:
            errors[change.name] = error
    try:
        new = [name for name in records if users.get(name) is None]
        if new and len(users) + len(new) > limits.USERS_MAX:
            raise PeerError(f"there may be {limits.USERS_MAX} users")
        await context.broker.change_security(*records.values())
    except KNOWN as error:
        errors = {name: errors.get(name, error) for name in times}
    return AlterUserScramCredentialsResponse(
        throttle_time=NO_THROTTLE,
        results=tuple(_result(name, errors.get(name)) for name in times),
    )


def _record(users: Users, change: CredentialChange) -> Record:
    """Return the record that makes a change. Raises Refusal."""
    mechanism = _MECHANISMS.get(change.mechanism)
    if mechanism is None:
        raise Refusal(ErrorCode.unsupported_sasl_mechanism, "unknown SCRAM mechanism")
    try:
        check_user_name(change.name)
    except InvalidName as error:
        raise Refusal(ErrorCode.unacceptable_credential, str(error)) from None
    user = users.get(change.name)
    if isinstance(change, ScramCredentialUpsertion):
        return user_record(_with_credential(user or User(change.name), mechanism, change))
    if user is None or mechanism not in user.verifiers:
        raise Refusal(ErrorCode.resource_not_found, "there is no such credential")
    left = user.without_verifier(mechanism)
    return user_deleted_record(change.name) if left is None else user_record(left)


def _with_credential(user: User, mechanism: Mechanism, change: ScramCredentialUpsertion) -> User:
    lowest, highest = limits.SCRAM_ITERATIONS_MIN, limits.SCRAM_ITERATIONS_MAX
    if not lowest <= change.iterations <= highest:
        raise Refusal(ErrorCode.unacceptable_credential, f"iterations are {lowest} to {highest}")
    if not 0 < len(change.salt) <= limits.SCRAM_SALT_BYTES_MAX:
        raise Refusal(
            ErrorCode.unacceptable_credential,
            f"a salt has 1 to {limits.SCRAM_SALT_BYTES_MAX} bytes",
        )
    if len(change.salted_password) != mechanism.hash_bytes:
        raise Refusal(
            ErrorCode.unacceptable_credential,
            f"a salted password of {mechanism.value} has {mechanism.hash_bytes} bytes",
        )
    verifier = scram.verifier(mechanism, change.salted_password, change.salt, change.iterations)
    return user.with_verifier(mechanism, verifier)


def _result(name: str, error: Exception | None) -> AlterUserScramCredentialsResult:
    code, text = (ErrorCode.none, None) if error is None else reason_of(error)
    return AlterUserScramCredentialsResult(user=name, error_code=code, error_message=text)
