"""The basic class: publishing, consuming, acknowledging. Nack is RabbitMQ's extension."""

from dataclasses import dataclass, field

from entrepot.wire.amqp.method import (
    Arguments,
    Bit,
    Long,
    LongLong,
    Method,
    PassedString,
    Short,
    ShortString,
)


@dataclass(frozen=True, slots=True)
class Qos(Method):
    ID = (60, 10)
    NAME = "basic.qos"

    prefetch_size: Long = 0
    prefetch_count: Short = 0
    is_global: Bit = False


@dataclass(frozen=True, slots=True)
class QosOk(Method):
    ID = (60, 11)
    NAME = "basic.qos-ok"


@dataclass(frozen=True, slots=True)
class Consume(Method):
    ID = (60, 20)
    NAME = "basic.consume"

    ticket: Short = 0
    queue: ShortString = ""
    consumer_tag: ShortString = ""
    no_local: Bit = False
    no_ack: Bit = False
    exclusive: Bit = False
    nowait: Bit = False
    arguments: Arguments = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConsumeOk(Method):
    ID = (60, 21)
    NAME = "basic.consume-ok"

    consumer_tag: ShortString = ""


@dataclass(frozen=True, slots=True)
class Cancel(Method):
    ID = (60, 30)
    NAME = "basic.cancel"

    consumer_tag: ShortString = ""
    nowait: Bit = False


@dataclass(frozen=True, slots=True)
class CancelOk(Method):
    ID = (60, 31)
    NAME = "basic.cancel-ok"

    consumer_tag: ShortString = ""


@dataclass(frozen=True, slots=True)
class Publish(Method):
    ID = (60, 40)
    NAME = "basic.publish"
    HAS_CONTENT = True

    ticket: Short = 0
    exchange: PassedString = ""
    routing_key: PassedString = ""
    mandatory: Bit = False
    immediate: Bit = False


@dataclass(frozen=True, slots=True)
class Return(Method):
    ID = (60, 50)
    NAME = "basic.return"
    HAS_CONTENT = True

    reply_code: Short = 200
    reply_text: PassedString = ""
    exchange: PassedString = ""
    routing_key: PassedString = ""


@dataclass(frozen=True, slots=True)
class Deliver(Method):
    ID = (60, 60)
    NAME = "basic.deliver"
    HAS_CONTENT = True

    consumer_tag: PassedString = ""
    delivery_tag: LongLong = 0
    redelivered: Bit = False
    exchange: PassedString = ""
    routing_key: PassedString = ""


@dataclass(frozen=True, slots=True)
class Get(Method):
    ID = (60, 70)
    NAME = "basic.get"

    ticket: Short = 0
    queue: ShortString = ""
    no_ack: Bit = False


@dataclass(frozen=True, slots=True)
class GetOk(Method):
    ID = (60, 71)
    NAME = "basic.get-ok"
    HAS_CONTENT = True

    delivery_tag: LongLong = 0
    redelivered: Bit = False
    exchange: PassedString = ""
    routing_key: PassedString = ""
    message_count: Long = 0


@dataclass(frozen=True, slots=True)
class GetEmpty(Method):
    ID = (60, 72)
    NAME = "basic.get-empty"

    cluster_id: ShortString = ""


@dataclass(frozen=True, slots=True)
class Ack(Method):
    ID = (60, 80)
    NAME = "basic.ack"

    delivery_tag: LongLong = 0
    multiple: Bit = False


@dataclass(frozen=True, slots=True)
class Reject(Method):
    ID = (60, 90)
    NAME = "basic.reject"

    delivery_tag: LongLong = 0
    requeue: Bit = True


@dataclass(frozen=True, slots=True)
class RecoverAsync(Method):
    ID = (60, 100)
    NAME = "basic.recover-async"

    requeue: Bit = False


@dataclass(frozen=True, slots=True)
class Recover(Method):
    ID = (60, 110)
    NAME = "basic.recover"

    requeue: Bit = False


@dataclass(frozen=True, slots=True)
class RecoverOk(Method):
    ID = (60, 111)
    NAME = "basic.recover-ok"


@dataclass(frozen=True, slots=True)
class Nack(Method):
    ID = (60, 120)
    NAME = "basic.nack"

    delivery_tag: LongLong = 0
    multiple: Bit = False
    requeue: Bit = True
