"""What handlers need of the connection whose request they serve."""

from collections.abc import Callable, Sequence
from typing import Protocol

from entrepot.core.ports import Chunk
from entrepot.gateway.pump import Cancellable
from entrepot.wire.kafka.frames import RequestHeader


class Answer(Protocol):
    """The answer to one request."""

    @property
    def guard(self) -> Callable[..., None]:
        """Return what calls a function on behalf of the request, later."""

    def send(self, body: Sequence[Chunk], size: int) -> None:
        """Answer with these chunks, which are so many bytes together."""

    def hold(self, work: Cancellable) -> None:
        """Let the next request wait until `go_on`. The work is cancelled if the client is gone."""

    def go_on(self) -> None:
        """End what `hold` began."""

    def omit(self) -> None:
        """Send no answer: that of a Produce with acks=0."""

    def refuse(self, reason: str) -> None:
        """Close the connection, where the protocol has no other answer."""


class RepeatableFetch(Protocol):
    """A fetch whose consumer may ask for the same again, from another offset on."""

    def serve_again(
        self, header: RequestHeader, frame: memoryview, position: int, answer: Answer
    ) -> bool:
        """Serve a request if it is the same. False means: it is another one."""

    def close(self) -> None:
        """Let go of everything: the connection is closed."""
