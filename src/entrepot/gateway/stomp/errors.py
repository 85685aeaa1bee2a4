"""What is wrong with a frame, and which receipt was asked for with it."""

from __future__ import annotations

from entrepot.core.errors import PeerError, StorageError


class FrameRefused(PeerError):
    """A frame that could not be served. The connection is closed."""

    def __init__(self, text: str, receipt: str | None) -> None:
        super().__init__(text)
        self.receipt = receipt  # None means: the client asked for none.


def about(error: PeerError | StorageError, receipt: str | None) -> FrameRefused:
    """Return the error as one of the frame that asked for this receipt."""
    return error if isinstance(error, FrameRefused) else FrameRefused(str(error), receipt)
