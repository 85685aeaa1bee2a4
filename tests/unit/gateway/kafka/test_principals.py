"""Users as Kafka writes them."""

import pytest

from entrepot.core.errors import PeerError
from entrepot.gateway.kafka.principals import principal_of, user_named, user_of


@pytest.mark.parametrize("user", ["ana", "*", "CN=ana,O=Acme", "User:ana", " "])
def test_there_and_back(user: str) -> None:
    assert user_of(principal_of(user)) == user


@pytest.mark.parametrize("principal", ["", "ana", "User:", "Group:sales", "user:ana"])
def test_what_is_no_user(principal: str) -> None:
    with pytest.raises(PeerError, match="written as User:name"):
        user_of(principal)


def test_a_setting_may_name_a_user_either_way() -> None:
    assert [user_named(name) for name in ("ana", "User:ana")] == ["ana", "ana"]
