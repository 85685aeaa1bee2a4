"""Publishes on a subject what is appended to the topic of the same name.

Nothing is done for a topic while nobody listens to its name, and no binding matches it: that is
found out once, until a binding or a listener comes or goes. Otherwise a reader follows each
partition from that append on, and what is committed is published for those who listen now. What
came to the topic by a subject has been heard there, and is not published again; so nothing goes
round.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from entrepot.broker.queue.stream_reader import StreamReader
from entrepot.broker.served_partition import ServedPartition
from entrepot.core import limits
from entrepot.core.errors import StorageError
from entrepot.core.faults import Faults
from entrepot.core.message import Envelope, Message, distinct
from entrepot.core.neutral import KEY_HEADER, NEUTRAL, Formats

log = logging.getLogger("entrepot.subject")

# Publishes messages on their subject; the topic of that name must not get them.
PublishFrom = Callable[[str, Sequence[Message]], None]


class _Tap:
    """Follows one partition."""

    def __init__(self, taps: TopicTaps, name: str, served: ServedPartition, offset: int) -> None:
        self._taps = taps
        self._name = name
        self._reader = StreamReader(served, taps.formats, offset)
        self._is_coming = False  # Whether it reads in the next turn.
        self._is_closed = False
        self._reader.listen(self._wake)

    def _wake(self) -> None:
        if not self._is_coming and not self._is_closed:
            self._is_coming = True
            guard, where = self._taps.faults.guard, f"publishing on subject {self._name}"
            asyncio.get_running_loop().call_soon(guard, where, self._go_on)

    def _go_on(self) -> None:
        self._is_coming = False
        if self._is_closed or not self._reader.is_behind:
            return
        if not self._taps.is_heard(self._name):
            self._taps.close(self._name)
            return
        try:
            pieces = self._reader.read(limits.QUEUE_TURN_MESSAGES_MAX)
        except StorageError as error:  # The log reports what is wrong with the partition.
            log.warning("topic %s is not heard any more: %s", self._name, error)
            self._taps.close(self._name)
            return
        for _, run in pieces:
            self._taps.publish(self._name, run.messages)
        self._wake()

    def close(self) -> None:
        self._is_closed = True
        self._reader.close()


class TopicTaps:
    def __init__(
        self,
        subject_exchange: str,
        formats: Formats,
        faults: Faults,
        is_heard: Callable[[str], bool],
        version: Callable[[], int],
        publish: PublishFrom,
    ) -> None:
        """`is_heard` says whether anything on that subject would reach anybody. It says the same
        while `version` is the same; -1 means: it depends on more."""
        self.formats = formats
        self.faults = faults
        self.is_heard = is_heard
        self._version = version
        self._subject_exchange = subject_exchange
        self._publish = publish
        self._taps: dict[str, dict[ServedPartition, _Tap]] = {}  # By topic.

    def appended(self, name: str, served: ServedPartition, offset_first: int) -> None:
        """Note that something was appended to a topic."""
        version = self._version()
        if served.unheard_version == version >= 0:
            return
        taps = self._taps.get(name)
        if taps is not None and served in taps:
            return
        if not self.is_heard(name):
            served.unheard_version = version
        else:
            self._taps.setdefault(name, {})[served] = _Tap(self, name, served, offset_first)

    def close(self, name: str) -> None:
        """Follow a topic no more: it is deleted, or nobody listens."""
        for tap in self._taps.pop(name, {}).values():
            tap.close()

    def publish(self, name: str, messages: Sequence[Message]) -> None:
        """Publish records of a topic on its subject, but for those that came by a subject."""
        known = {id(each): self._heard_as(name, each) for each in distinct(messages)}
        heard: list[Message] = []
        for envelope, body in messages:
            seen = known[id(envelope)]
            if seen is not None:
                heard.append((seen, body))
        if heard:
            self._publish(name, heard)

    def _heard_as(self, name: str, envelope: Envelope) -> Envelope | None:
        """Return the envelope that a record is published with; None if it is not published."""
        if envelope.exchange == self._subject_exchange:
            return None
        head = envelope.head
        if envelope.format is NEUTRAL:
            stored = NEUTRAL.read(head)
            facts = stored.properties
            if envelope.subject and envelope.subject != name:  # The record's key.
                headers = {KEY_HEADER: envelope.subject, **facts.headers}
                facts = replace(facts, headers=headers)
            if facts.is_persistent is None:
                facts = replace(facts, is_persistent=True)
            head = NEUTRAL.write(replace(stored, properties=facts))
        return Envelope(self._subject_exchange, name, head, envelope.format)
