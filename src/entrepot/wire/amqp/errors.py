"""AMQP's errors: a reply code, a text, and whether the channel or the connection is closed.

The specification divides its reply codes. A *soft* one closes only the channel on which the
error occurred; a *hard* one closes the connection. That is a property of the code and not of
the place that finds the error, so it is kept here.
"""

from enum import IntEnum

from entrepot.core.errors import PeerError

TEXT_BYTES_MAX = 255  # A reply text is a short string.
_CUT = "..."


class ReplyCode(IntEnum):
    SUCCESS = 200
    CONTENT_TOO_LARGE = 311
    NO_ROUTE = 312
    NO_CONSUMERS = 313
    CONNECTION_FORCED = 320
    INVALID_PATH = 402
    ACCESS_REFUSED = 403
    NOT_FOUND = 404
    RESOURCE_LOCKED = 405
    PRECONDITION_FAILED = 406
    FRAME_ERROR = 501
    SYNTAX_ERROR = 502
    COMMAND_INVALID = 503
    CHANNEL_ERROR = 504
    UNEXPECTED_FRAME = 505
    RESOURCE_ERROR = 506
    NOT_ALLOWED = 530
    NOT_IMPLEMENTED = 540
    INTERNAL_ERROR = 541


SOFT = (
    ReplyCode.CONTENT_TOO_LARGE,
    ReplyCode.NO_ROUTE,
    ReplyCode.NO_CONSUMERS,
    ReplyCode.ACCESS_REFUSED,
    ReplyCode.NOT_FOUND,
    ReplyCode.RESOURCE_LOCKED,
    ReplyCode.PRECONDITION_FAILED,
)


class AmqpError(PeerError):
    """An error of the peer, with everything that the `close` method says about it."""

    def __init__(
        self,
        code: ReplyCode,
        explanation: str,
        *,
        channel: int = 0,
        method_id: tuple[int, int] = (0, 0),
    ) -> None:
        """`method_id` is the class and the method that failed. Zeros mean: there is none."""
        super().__init__(f"{code.name} - {explanation}")
        self.code = code
        self.explanation = explanation
        self.channel = channel
        self.method_id = method_id

    @property
    def closes_connection(self) -> bool:
        """Return whether the connection is closed; otherwise only the channel is."""
        return self.channel == 0 or self.code not in SOFT

    @property
    def text(self) -> str:
        """Return `NAME - explanation`, as RabbitMQ writes it, cut to what a short string holds."""
        data = str(self).encode("utf-8", "replace")
        if len(data) <= TEXT_BYTES_MAX:
            return data.decode()
        kept = data[: TEXT_BYTES_MAX - len(_CUT)]
        return kept.decode("utf-8", "ignore") + _CUT
