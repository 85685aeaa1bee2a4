"""The connection class: login, limits, heartbeat, virtual host, closing."""

from dataclasses import dataclass, field

from entrepot.wire.amqp.method import (
    Arguments,
    Bit,
    Long,
    LongString,
    Method,
    Octet,
    Short,
    ShortString,
)


@dataclass(frozen=True, slots=True)
class Start(Method):
    ID = (10, 10)
    NAME = "connection.start"

    version_major: Octet = 0
    version_minor: Octet = 9
    server_properties: Arguments = field(default_factory=dict)
    mechanisms: LongString = b"PLAIN"
    locales: LongString = b"en_US"


@dataclass(frozen=True, slots=True)
class StartOk(Method):
    ID = (10, 11)
    NAME = "connection.start-ok"

    client_properties: Arguments = field(default_factory=dict)
    mechanism: ShortString = "PLAIN"
    response: LongString = b""
    locale: ShortString = "en_US"


@dataclass(frozen=True, slots=True)
class Secure(Method):
    ID = (10, 20)
    NAME = "connection.secure"

    challenge: LongString = b""


@dataclass(frozen=True, slots=True)
class SecureOk(Method):
    ID = (10, 21)
    NAME = "connection.secure-ok"

    response: LongString = b""


@dataclass(frozen=True, slots=True)
class Tune(Method):
    ID = (10, 30)
    NAME = "connection.tune"

    channel_max: Short = 0
    frame_max: Long = 0
    heartbeat: Short = 0


@dataclass(frozen=True, slots=True)
class TuneOk(Method):
    ID = (10, 31)
    NAME = "connection.tune-ok"

    channel_max: Short = 0
    frame_max: Long = 0
    heartbeat: Short = 0


@dataclass(frozen=True, slots=True)
class Open(Method):
    ID = (10, 40)
    NAME = "connection.open"

    virtual_host: ShortString = "/"
    capabilities: ShortString = ""
    insist: Bit = False


@dataclass(frozen=True, slots=True)
class OpenOk(Method):
    ID = (10, 41)
    NAME = "connection.open-ok"

    known_hosts: ShortString = ""


@dataclass(frozen=True, slots=True)
class Close(Method):
    ID = (10, 50)
    NAME = "connection.close"

    reply_code: Short = 200
    reply_text: ShortString = ""
    class_id: Short = 0
    method_id: Short = 0


@dataclass(frozen=True, slots=True)
class CloseOk(Method):
    ID = (10, 51)
    NAME = "connection.close-ok"


@dataclass(frozen=True, slots=True)
class Blocked(Method):
    ID = (10, 60)
    NAME = "connection.blocked"

    reason: ShortString = ""


@dataclass(frozen=True, slots=True)
class Unblocked(Method):
    ID = (10, 61)
    NAME = "connection.unblocked"


@dataclass(frozen=True, slots=True)
class UpdateSecret(Method):
    ID = (10, 70)
    NAME = "connection.update-secret"

    new_secret: LongString = b""
    reason: ShortString = ""


@dataclass(frozen=True, slots=True)
class UpdateSecretOk(Method):
    ID = (10, 71)
    NAME = "connection.update-secret-ok"
