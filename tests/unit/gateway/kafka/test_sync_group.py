from kio.schema.errors import ErrorCode

from tests.unit.gateway.kafka.group_requests import deny_everything, join, stable, sync
from tests.unit.gateway.kafka.node import Node, on_node


@on_node()
async def test_everybody_gets_a_part(node: Node) -> None:
    first = await join(node)
    joined = await join(node, "g", first.member_id)
    answer = await sync(node, "g", joined.member_id, 1, me=b"all")
    assert (answer.error_code, answer.assignment) == (ErrorCode.none, b"all")
    assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")


@on_node()
async def test_refusals(node: Node) -> None:
    member_id, generation = await stable(node)
    cases = {
        ("g", member_id, generation + 1): ErrorCode.illegal_generation,
        ("g", "nobody", generation): ErrorCode.unknown_member_id,
        ("none", member_id, generation): ErrorCode.unknown_member_id,
        ("", member_id, generation): ErrorCode.invalid_group_id,
    }
    for arguments, code in cases.items():
        answer = await sync(node, *arguments)
        assert (answer.error_code, answer.assignment) == (code, b"")
    deny_everything(node)
    answer = await sync(node, "g", member_id, generation)
    assert answer.error_code is ErrorCode.group_authorization_failed
