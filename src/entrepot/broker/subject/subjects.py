"""The verbs of subjects, for gateways: publish on them, and retain what is published."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from entrepot.broker.queue.message import Publication, Run
from entrepot.broker.session.ports import Broadcast
from entrepot.broker.subject.listener import Listener
from entrepot.broker.subject.listeners import Listeners
from entrepot.broker.subject.retained import Retained
from entrepot.core.message import Message
from entrepot.core.ports import Clock

# Publishes messages to an exchange: see `Publisher.publish`. The last arguments: who may write to
# which topic, the session that publishes, whether the messages may be repeated ones, and what is
# encoded of all of them together.
Publish = Callable[
    [
        Sequence[Message],
        Publication | None,
        Callable[[str], None] | None,
        object | None,
        bool,
        dict[object, bytes] | None,
    ],
    Sequence[Message],
]
# Publishes one message of a session, if only listeners get it: see `Publisher.publish_alone`.
PublishAlone = Callable[
    [Sequence[Message], Publication | None, object | None], Sequence[Message] | None
]


class Subjects:
    def __init__(
        self,
        exchange: str,
        retained: Retained,
        publish: Publish,
        publish_alone: PublishAlone,
        listeners: Listeners[Listener],
        clock: Clock,
        look_again: Callable[[], None],
    ) -> None:
        self.exchange = exchange  # The exchange of all envelopes that are published here.
        self.retained = retained
        self._publish = publish
        self.publish_alone = publish_alone  # Faster, for one message that is not retained.
        self._listeners = listeners
        self._clock = clock
        self._look_again = look_again

    def listeners(self, subject: str) -> tuple[Listener, ...]:
        """Return those who listen to a subject now."""
        return self._listeners.of(subject)

    def publish(
        self,
        messages: Sequence[Message],
        publication: Publication | None,
        *,
        sender: object | None = None,
        is_retained: bool = False,
        is_repeated: bool = False,
        check: Callable[[str], None] | None = None,
        encoded: dict[object, bytes] | None = None,
    ) -> Sequence[Message]:
        """Publish messages on their subjects. Returns those that nobody gets.

        They go to the queues and topics of the same names or with matching bindings, and to the
        sessions with matching subscriptions, but for the `sender` if it does not want its own.
        With `is_retained` each replaces the retained message of its subject, and deletes it if it
        has no body. `is_repeated` says that they may have been published before: then only those
        get them who have not got them yet. `check` is called with the name of a topic or queue in
        which they would land by their own name; if it raises a PeerError, they do not.
        `encoded` is what receivers of all of them may use: see `Broadcast`.
        """
        nowhere: Sequence[Message] | None = None
        if len(messages) == 1 and not is_repeated:
            nowhere = self.publish_alone(messages, publication, sender)
        if nowhere is None:
            nowhere = self._publish(messages, publication, check, sender, is_repeated, encoded)
        if is_retained:
            for message in messages:
                self.retained.keep(message, publication)
        return nowhere

    def look_again(self) -> None:
        """Note that what was published lately may be stored although it was refused: when such
        messages are repeated, they are looked for again."""
        self._look_again()

    def is_heard(self, subject: str) -> bool:
        """Return whether anybody listens to this subject."""
        return bool(self._listeners.of(subject))

    def tell(self, message: Message) -> None:
        """Publish a message of the broker's own, to those who listen and to nobody else."""
        run = Run(self._clock.now_ms(), [message])
        broadcast = Broadcast(run)
        for listener in self._listeners.of(message[0].subject):
            listener.hear(broadcast)
