"""Large batches: written in slices before they are appended, so that other requests do not wait.

The body of such a batch is written where an append would put it now, behind the end of the
active segment. It is not part of the log there: nobody reads behind the end, and where its
header will be there are zeros, which recovery takes for a write that never finished. The append
then writes the header alone. When something else was appended meanwhile, or the segment was
closed, what was written is cut off, and the append writes everything at once.
"""

from collections.abc import Iterator

from entrepot.core.ports import Buffer, File
from entrepot.log.files import write_all
from entrepot.log.segment import Segment

SLICE_BYTES = 1 << 20


class Ahead:
    """A batch, in chunks, that is written before it is appended. The first chunk is its header."""

    def __init__(self, segment: Segment, file: File, chunks: list[Buffer]) -> None:
        self.segment = segment
        self.file = file
        self.chunks = chunks
        self.is_written = False

    def write(self) -> Iterator[None]:
        """Write all but the header; yield after each slice of SLICE_BYTES. Raises OSError."""
        header, *body = self.chunks
        position = self.segment.size
        position += write_all(self.file, position, [bytes(len(header))])
        for chunk in body:
            for start in range(0, len(chunk), SLICE_BYTES):
                piece = memoryview(chunk)[start : start + SLICE_BYTES]
                position += write_all(self.file, position, [piece])
                if len(piece) == SLICE_BYTES:
                    yield
        self.is_written = True
