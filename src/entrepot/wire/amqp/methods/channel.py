"""The channel class: opening and closing channels of a connection."""

from dataclasses import dataclass

from entrepot.wire.amqp.method import Bit, LongString, Method, Short, ShortString


@dataclass(frozen=True, slots=True)
class Open(Method):
    ID = (20, 10)
    NAME = "channel.open"

    out_of_band: ShortString = ""


@dataclass(frozen=True, slots=True)
class OpenOk(Method):
    ID = (20, 11)
    NAME = "channel.open-ok"

    channel_id: LongString = b""


@dataclass(frozen=True, slots=True)
class Flow(Method):
    ID = (20, 20)
    NAME = "channel.flow"

    active: Bit = True


@dataclass(frozen=True, slots=True)
class FlowOk(Method):
    ID = (20, 21)
    NAME = "channel.flow-ok"

    active: Bit = True


@dataclass(frozen=True, slots=True)
class Close(Method):
    ID = (20, 40)
    NAME = "channel.close"

    reply_code: Short = 200
    reply_text: ShortString = ""
    class_id: Short = 0
    method_id: Short = 0


@dataclass(frozen=True, slots=True)
class CloseOk(Method):
    ID = (20, 41)
    NAME = "channel.close-ok"
