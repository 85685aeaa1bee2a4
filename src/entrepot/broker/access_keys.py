"""Access keys: an id and a secret of a user, for protocols whose clients sign requests.

To check a signature the broker must know the secret, so it is stored as it is, unlike a password:
docs/decisions/0026-access-keys.md. The broker makes it, so it is nothing that anybody uses
elsewhere, and shows it once. A user may have several keys, so that one can be replaced while it
is in use; they are deleted with the user.
"""

from __future__ import annotations

from base64 import b32encode, b64encode
from dataclasses import dataclass, field

import msgspec

from entrepot.core import limits
from entrepot.core.errors import InvalidName
from entrepot.core.ports import Entropy
from entrepot.core.record import Record

_ID_START = "ENTR"
_ID_BYTES, _SECRET_BYTES = 10, 30  # As texts: 16 and 40 characters.


@dataclass(frozen=True, slots=True)
class AccessKey:
    id: str
    user: str
    secret: str = field(repr=False)


class _Value(msgspec.Struct):
    user: str
    secret: str


class AccessKeys:
    """All access keys, folded from the catalog."""

    def __init__(self) -> None:
        self._keys: dict[str, AccessKey] = {}

    def apply(self, key_id: str, value: bytes | None) -> None:
        """Fold one record of the catalog."""
        if value is None:
            self._keys.pop(key_id, None)
            return
        found = msgspec.json.decode(value, type=_Value)
        self._keys[key_id] = AccessKey(key_id, found.user, found.secret)

    def user_deleted(self, user: str) -> None:
        for key in self.of(user):
            del self._keys[key.id]

    def get(self, key_id: str) -> AccessKey | None:
        return self._keys.get(key_id)

    def of(self, user: str) -> list[AccessKey]:
        return [key for key in self._keys.values() if key.user == user]

    def new(self, user: str, entropy: Entropy) -> AccessKey:
        """Make a key. Raises InvalidName if the user has too many."""
        if len(self.of(user)) >= limits.USER_KEYS_MAX:
            raise InvalidName(f"a user has at most {limits.USER_KEYS_MAX} access keys")
        key_id = _ID_START + b32encode(entropy.token(_ID_BYTES)).decode()
        return AccessKey(key_id, user, b64encode(entropy.token(_SECRET_BYTES)).decode())


def key_record(key: AccessKey) -> Record:
    value = msgspec.json.encode(_Value(key.user, key.secret))
    return Record(f"access-key:{key.id}".encode(), value)


def key_deleted_record(key_id: str) -> Record:
    return Record(f"access-key:{key_id}".encode(), None)
