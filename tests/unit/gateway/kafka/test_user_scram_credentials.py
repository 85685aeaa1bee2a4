"""AlterUserScramCredentials and DescribeUserScramCredentials."""

import pytest
from kio.schema.alter_user_scram_credentials.v0.request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kio.schema.describe_user_scram_credentials.v0.request import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from kio.schema.describe_user_scram_credentials.v0.response import (
    DescribeUserScramCredentialsResponse,
)
from kio.schema.errors import ErrorCode
from kio.static.primitive import i8, i32

from entrepot.core import limits, scram
from entrepot.core.scram import Mechanism
from entrepot.gateway.kafka import alter_user_scram_credentials, describe_user_scram_credentials
from tests.unit.gateway.kafka.node import Node, on_node

SHA_256, SHA_512 = i8(1), i8(2)
SALT = b"0123456789abcdef"

Change = ScramCredentialDeletion | ScramCredentialUpsertion


def put(
    name: str = "ana",
    mechanism: i8 = SHA_256,
    *,
    password: str = "right",
    iterations: int = 4096,
    salt: bytes = SALT,
    salted: bytes | None = None,
) -> ScramCredentialUpsertion:
    kind = Mechanism.SHA_512 if mechanism == SHA_512 else Mechanism.SHA_256
    if salted is None:
        salted = scram.salted_password(kind, password, salt or b"x", max(1, min(iterations, 4096)))
    return ScramCredentialUpsertion(
        name=name,
        mechanism=mechanism,
        iterations=i32(iterations),
        salt=salt,
        salted_password=salted,
    )


def drop(name: str = "ana", mechanism: i8 = SHA_256) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


async def alter(node: Node, *changes: Change) -> dict[str, ErrorCode]:
    request = AlterUserScramCredentialsRequest(
        deletions=tuple(each for each in changes if isinstance(each, ScramCredentialDeletion)),
        upsertions=tuple(each for each in changes if isinstance(each, ScramCredentialUpsertion)),
    )
    answer = await alter_user_scram_credentials.handle(node.context, request)
    assert len({each.user for each in answer.results}) == len(answer.results)
    return {each.user: each.error_code for each in answer.results}


def describe(node: Node, *names: str) -> DescribeUserScramCredentialsResponse:
    users = tuple(UserName(name=name) for name in names) or None
    request = DescribeUserScramCredentialsRequest(users=users)
    return describe_user_scram_credentials.handle(node.context, request)


def infos(node: Node, name: str) -> list[tuple[int, int]]:
    (result,) = describe(node, name).results
    return [(info.mechanism, info.iterations) for info in result.credential_infos]


@on_node()
async def test_a_user_comes_and_goes_for_good(node: Node) -> None:
    assert await alter(node, put(), put("bob", SHA_512)) == dict.fromkeys(
        ("ana", "bob"), ErrorCode.none
    )
    assert await alter(node, put(mechanism=SHA_512, iterations=8192)) == {"ana": ErrorCode.none}
    await node.power_fails()
    assert infos(node, "ana") == [(SHA_256, 4096), (SHA_512, 8192)]
    assert [each.user for each in describe(node).results] == ["ana", "bob"]
    kept = node.context.broker.users.verifier("ana", Mechanism.SHA_256)
    salted = scram.salted_password(Mechanism.SHA_256, "right", SALT, 4096)
    proof = scram.client_proof(Mechanism.SHA_256, salted, b"exchanged")
    assert scram.proves(Mechanism.SHA_256, kept, b"exchanged", proof)
    assert await node.context.broker.users.knows("bob", "right")
    assert await alter(node, drop()) == {"ana": ErrorCode.none}
    assert infos(node, "ana") == [(SHA_512, 8192)]
    assert await alter(node, drop(mechanism=SHA_512), drop("bob", SHA_512)) == dict.fromkeys(
        ("ana", "bob"), ErrorCode.none
    )
    await node.power_fails()
    assert describe(node).results == ()
    assert not await node.context.broker.users.knows("bob", "right")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (put(""), ErrorCode.unacceptable_credential),
        (put("x" * 256), ErrorCode.unacceptable_credential),
        (put("a\tb"), ErrorCode.unacceptable_credential),
        (put(mechanism=i8(0)), ErrorCode.unsupported_sasl_mechanism),
        (put(mechanism=i8(3)), ErrorCode.unsupported_sasl_mechanism),
        (put(iterations=4095), ErrorCode.unacceptable_credential),
        (put(iterations=16385), ErrorCode.unacceptable_credential),
        (put(iterations=-1), ErrorCode.unacceptable_credential),
        (put(salt=b""), ErrorCode.unacceptable_credential),
        (put(salt=bytes(1025)), ErrorCode.unacceptable_credential),
        (put(salted=b""), ErrorCode.unacceptable_credential),
        (put(salted=bytes(31)), ErrorCode.unacceptable_credential),
        (put(mechanism=SHA_512, salted=bytes(32)), ErrorCode.unacceptable_credential),
        (drop("bob"), ErrorCode.resource_not_found),
        (drop("eve", SHA_512), ErrorCode.resource_not_found),
        (drop("ana", i8(9)), ErrorCode.unsupported_sasl_mechanism),
    ],
)
@on_node()
async def test_what_is_refused_changes_nothing(node: Node, change: Change, code: ErrorCode) -> None:
    await alter(node, put("eve"))
    before = infos(node, "eve")
    result = await alter(node, change, put("good"))
    assert result == {change.name: code, "good": ErrorCode.none}
    assert [each.user for each in describe(node).results] == ["eve", "good"]
    assert infos(node, "eve") == before


@pytest.mark.parametrize(
    "changes",
    [
        (put(), put(mechanism=SHA_512)),
        (put(), drop()),
        (drop(), drop(mechanism=SHA_512)),
        (put(), put(), put()),
    ],
)
@on_node()
async def test_a_user_is_changed_once_in_a_request(node: Node, changes: list[Change]) -> None:
    assert await alter(node, *changes) == {"ana": ErrorCode.duplicate_resource}
    assert describe(node).results == ()


@on_node()
async def test_users_are_bounded(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "USERS_MAX", 1)
    assert await alter(node, put()) == {"ana": ErrorCode.none}
    assert await alter(node, put("bob")) == {"bob": ErrorCode.invalid_request}
    assert await alter(node, drop()) == {"ana": ErrorCode.none}


@on_node()
async def test_describing_who_is_not_there_or_twice(node: Node) -> None:
    await alter(node, put())
    results = {each.user: each.error_code for each in describe(node, "bob", "ana", "ana").results}
    assert results == {"bob": ErrorCode.resource_not_found, "ana": ErrorCode.duplicate_resource}


@on_node()
async def test_whoever_may_not(node: Node) -> None:
    node.context.broker.access.is_enforced = True
    assert await alter(node, put()) == {"ana": ErrorCode.cluster_authorization_failed}
    assert describe(node).error_code is ErrorCode.cluster_authorization_failed
    assert node.context.broker.users.names() == []
