"""What a forwarded channel does when the node that has the queues is lost."""

from __future__ import annotations

from struct import pack

from entrepot.gateway.amqp.forwarded_channel import ForwardedChannel
from entrepot.wire.amqp.frames import frame, method_frame
from entrepot.wire.amqp.method import Method
from entrepot.wire.amqp.methods import basic, channel, confirm, decode, queue, tx
from entrepot.wire.amqp.scan import BODY, HEADER, METHOD
from entrepot.wire.amqp.split import Frame, FrameSplitter

N = 5


def as_frame(method: Method) -> Frame:
    return Frame(METHOD, N, method_frame(N, method))


def header(size: int) -> Frame:
    return Frame(HEADER, N, frame(HEADER, N, pack(">HHQH", 60, 0, size, 0)))


def body(data: bytes) -> Frame:
    return Frame(BODY, N, frame(BODY, N, data))


def methods(chunks: list[bytes] | bytes) -> list[Method]:
    data = chunks if isinstance(chunks, bytes) else b"".join(chunks)
    splitter, found = FrameSplitter(10**6), []
    for start in range(0, len(data), 1_000):
        part = data[start : start + 1_000]
        splitter.writable()[: len(part)] = part
        found += splitter.received(len(part))
    return [decode(each.payload) for each in found if each.kind == METHOD]


class Bench:
    def __init__(self) -> None:
        self.channel = ForwardedChannel(N, hears_cancels=True)
        self.ask(channel.Open(), channel.OpenOk())

    def ask(self, method: Method, answer: Method) -> list[Method]:
        self.channel.from_client(as_frame(method))
        return self.home(as_frame(answer))

    def home(self, *frames: Frame) -> list[Method]:
        out: list[bytes] = []
        for each in frames:
            out += self.channel.from_home(each)[0]
        return methods(out)

    def client(self, *frames: Frame) -> list[Method]:
        out: list[bytes] = []
        for each in frames:
            out += self.channel.from_client(each)
        return methods(out)

    def publish(self) -> list[Method]:
        return self.client(as_frame(basic.Publish(routing_key="q")), header(2), body(b"ab"))

    def deliver(self, tag: int) -> list[Method]:
        return self.home(as_frame(basic.Deliver("c", tag)), header(2), body(b"ab"))

    def lose(self) -> tuple[list[Method], list[Method]]:
        told = methods(self.channel.home_lost())
        return told, methods(self.channel.replay())


def test_unconfirmed_publishes_are_nacked_and_numbers_go_on() -> None:
    bench = Bench()
    bench.ask(confirm.Select(), confirm.SelectOk())
    for _ in range(3):
        bench.publish()
    assert bench.home(as_frame(basic.Ack(1))) == [basic.Ack(1)]
    told, replayed = bench.lose()
    assert told == [basic.Nack(3, multiple=True, requeue=False)]
    assert replayed == [channel.Open(), confirm.Select()]
    assert bench.home(as_frame(channel.OpenOk()), as_frame(confirm.SelectOk())) == []
    bench.publish()
    assert bench.home(as_frame(basic.Ack(1, multiple=True))) == [basic.Ack(4, multiple=True)]
    assert bench.lose()[0] == []  # Everything is confirmed.


def test_the_rest_of_a_publish_that_was_cut_is_dropped() -> None:
    bench = Bench()
    bench.ask(confirm.Select(), confirm.SelectOk())
    bench.client(as_frame(basic.Publish(routing_key="q")), header(4), body(b"ab"))
    told, _ = bench.lose()
    assert told == [basic.Nack(1, multiple=True, requeue=False)]
    assert bench.channel.from_client(body(b"cd")) == []
    assert len(bench.publish()) == 1


def test_consumers_are_made_again_and_delivery_tags_go_on() -> None:
    bench = Bench()
    bench.ask(basic.Qos(prefetch_count=9), basic.QosOk())
    bench.ask(basic.Consume(queue="q"), basic.ConsumeOk("c"))
    assert bench.deliver(1) == [basic.Deliver("c", 1)]
    assert bench.deliver(2) == [basic.Deliver("c", 2)]
    told, replayed = bench.lose()
    assert told == []
    assert replayed == [
        channel.Open(),
        basic.Qos(prefetch_count=9),
        basic.Consume(queue="q", consumer_tag="c"),
    ]
    answers = channel.OpenOk(), basic.QosOk(), basic.ConsumeOk("c")
    assert bench.home(*map(as_frame, answers)) == []
    assert bench.deliver(1) == [basic.Deliver("c", 3)]
    assert bench.client(as_frame(basic.Ack(2, multiple=True))) == []  # Of the lost home.
    assert bench.client(as_frame(basic.Ack(3))) == [basic.Ack(1)]
    assert bench.client(as_frame(basic.Nack(3))) == [basic.Nack(1)]


def test_acknowledging_all_of_nothing_is_dropped() -> None:
    bench = Bench()
    bench.ask(basic.Consume(queue="q"), basic.ConsumeOk("c"))
    bench.deliver(1)
    bench.lose()
    assert bench.client(as_frame(basic.Ack(0, multiple=True))) == []


def test_a_message_that_was_cut_is_never_begun() -> None:
    bench = Bench()
    bench.ask(basic.Consume(queue="q"), basic.ConsumeOk("c"))
    assert bench.home(as_frame(basic.Deliver("c", 1)), header(4), body(b"ab")) == []
    assert not bench.channel.is_amid_message
    bench.lose()


def test_a_request_without_an_answer_is_made_again() -> None:
    bench = Bench()
    declare = queue.Declare(queue="q", durable=True)
    bench.client(as_frame(declare))
    assert bench.lose()[1] == [channel.Open(), declare]
    assert bench.home(as_frame(channel.OpenOk())) == []
    assert bench.home(as_frame(queue.DeclareOk("q"))) == [queue.DeclareOk("q")]


def test_a_get_whose_message_was_cut_is_made_again() -> None:
    bench = Bench()
    bench.client(as_frame(basic.Get(queue="q")))
    assert bench.home(as_frame(basic.GetOk(1)), header(4)) == []
    assert bench.lose()[1] == [channel.Open(), basic.Get(queue="q")]


def test_a_consumer_whose_queue_is_lost_is_cancelled_and_the_others_go_on() -> None:
    bench = Bench()
    bench.ask(basic.Consume(queue="lost"), basic.ConsumeOk("a"))
    bench.ask(basic.Consume(queue="q"), basic.ConsumeOk("b"))
    bench.lose()
    assert bench.home(as_frame(channel.OpenOk())) == []
    to_client, to_home = bench.channel.from_home(as_frame(channel.Close(404, "lost", 60, 20)))
    assert methods(to_client) == [basic.Cancel("a", nowait=True)]
    assert methods(to_home) == [
        channel.CloseOk(),
        channel.Open(),
        basic.Consume(queue="q", consumer_tag="b"),
    ]


def test_a_transaction_ends_its_channel() -> None:
    bench = Bench()
    bench.ask(tx.Select(), tx.SelectOk())
    told, replayed = bench.lose()
    assert [each.ID for each in told] == [channel.Close.ID]
    assert replayed == []
    assert bench.publish() == []
    bench.client(as_frame(channel.CloseOk()))
    assert bench.channel.is_over


def test_a_channel_that_is_being_closed_is_closed() -> None:
    bench = Bench()
    bench.client(as_frame(channel.Close()))
    assert methods(bench.channel.home_lost()) == [channel.CloseOk()]
    assert bench.channel.is_over


def test_the_homes_refusal_closes_the_channel() -> None:
    bench = Bench()
    bench.client(as_frame(queue.Declare(queue="q", passive=True)))
    close = channel.Close(404, "no queue", 50, 10)
    assert bench.home(as_frame(close)) == [close]
    assert bench.publish() == []
    bench.client(as_frame(channel.CloseOk()))
    assert bench.channel.is_over
