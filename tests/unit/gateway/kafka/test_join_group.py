import errno

from kio.schema.errors import ErrorCode

from tests.unit.gateway.kafka.group_requests import deny_everything, join, ms, sync
from tests.unit.gateway.kafka.node import Node, on_node


@on_node()
async def test_a_member_gets_its_id_and_then_its_group(node: Node) -> None:
    first = await join(node)
    assert first.error_code is ErrorCode.member_id_required
    assert first.member_id.startswith("client-")
    joined = await join(node, "g", first.member_id)
    assert (joined.error_code, joined.generation_id) == (ErrorCode.none, 1)
    assert (joined.protocol_type, joined.protocol_name) == ("consumer", "range")
    assert joined.leader == joined.member_id == first.member_id
    assert [each.member_id for each in joined.members] == [first.member_id]


@on_node()
async def test_old_clients_join_in_one_step(node: Node) -> None:
    """Before v4 nobody is told its id first; before v7 a name cannot be null."""
    for version in range(4):
        joined = await join(node, f"g{version}", version=version)
        assert (joined.error_code, joined.generation_id) == (ErrorCode.none, 1)
    refused = await join(node, "g0", "nobody", version=6)
    assert (refused.error_code, refused.protocol_name) == (ErrorCode.unknown_member_id, "")
    refused = await join(node, "g0", "nobody", version=7)
    assert refused.protocol_name is None


@on_node()
async def test_before_v1_a_rebalance_may_take_a_session(node: Node) -> None:
    joined = await join(node, version=0, session=ms(7_000), rebalance=ms(-1))
    (member,) = node.context.broker.groups._groups["g"].roster  # type: ignore[union-attr]
    assert member.id == joined.member_id
    assert (member.session_ms, member.rebalance_ms) == (7_000, 7_000)


@on_node()
async def test_a_static_leader_is_told_to_skip_from_v9_on(node: Node) -> None:
    for version, skips in ((8, False), (9, True)):
        group = f"g{version}"
        first = await join(node, group, instance="i")
        await sync(node, group, first.member_id, 1, me=b"all")
        again = await join(node, group, instance="i", version=version)
        assert again.error_code is ErrorCode.none
        assert (again.generation_id, again.skip_assignment) == (1, skips)
        assert again.member_id.startswith("i-")
        assert (again.leader == again.member_id) is skips


@on_node()
async def test_refusals(node: Node) -> None:
    assert (await join(node, "")).error_code is ErrorCode.invalid_group_id
    bad = await join(node, session=ms(1))
    assert bad.error_code is ErrorCode.invalid_session_timeout
    node.disk.fail_next("write", errno.ENOSPC)
    late = await join(node)
    assert late.error_code is ErrorCode.coordinator_not_available
    deny_everything(node)
    denied = await join(node)
    assert denied.error_code is ErrorCode.group_authorization_failed
