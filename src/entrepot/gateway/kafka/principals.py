"""Reads and writes users as Kafka does: `User:ana`, and `User:*` for all users."""

from entrepot.core.errors import PeerError

_PREFIX = "User:"


def principal_of(user: str) -> str:
    """Write a user as Kafka does."""
    return _PREFIX + user


def user_of(principal: str) -> str:
    """Read a user. Raises PeerError if the text is not one."""
    user = principal.removeprefix(_PREFIX)
    if user in ("", principal):
        raise PeerError(f"a principal is written as User:name, not {principal[:100]!r}")
    return user


def user_named(name: str) -> str:
    """Return the user of a setting, which may have the prefix `User:` or not."""
    return name.removeprefix(_PREFIX)
