"""What the broker notes about a message of MQTT's format, as MessagePack.

msgspec reads the annotations of the class, so this module is not compiled.
"""

from __future__ import annotations

import msgspec

from entrepot.core.properties import Death


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the broker notes about a message. Persisted: never change a name."""

    identity: bytes | None = None  # By which a repeated publish is recognised.
    deaths: tuple[Death, ...] = ()
    delayed_at: str = ""  # The delayed exchange at which it waits.


NO_NOTE = Note()
encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Note).decode
