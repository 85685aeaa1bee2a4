"""Access keys: made by the broker, bounded, and gone with their user."""

import pytest

from entrepot.broker.access_keys import AccessKeys, key_deleted_record, key_record
from entrepot.broker.users import Users
from entrepot.core import limits
from entrepot.core.errors import InvalidName
from entrepot.core.record import Record
from sim.entropy import SimEntropy
from sim.loop import SimLoop, run


def apply(keys: AccessKeys, record: Record) -> None:
    assert record.key is not None
    keys.apply(record.key.decode().partition(":")[2], record.value)


def test_keys_are_folded_and_gone_with_their_user() -> None:
    async def story(loop: SimLoop) -> None:
        users = Users(SimEntropy(loop.random("entropy")))
        with pytest.raises(InvalidName):
            users.new_key("ana")
        for name in ("ana", "ben"):
            users.apply(name, b'{"scrypt": null, "scram": {}}')
        one, two, other = users.new_key("ana"), users.new_key("ana"), users.new_key("ben")
        assert len({one.id, two.id, one.secret, two.secret}) == 4
        assert one.secret not in repr(one)
        for key in (one, two, other):
            apply(users.keys, key_record(key))
        assert users.keys.get(one.id) == one
        apply(users.keys, key_deleted_record(one.id))
        assert users.keys.of("ana") == [two]
        users.apply("ana", None)
        assert (users.keys.get(two.id), users.keys.get(other.id)) == (None, other)
        for _ in range(limits.USER_KEYS_MAX - 1):
            apply(users.keys, key_record(users.new_key("ben")))
        with pytest.raises(InvalidName):
            users.new_key("ben")

    run(0, story)
