"""The four doors: time, chance, disk and network.

Everything the house knows of the world comes in through these protocols. The
real ones live in `log.disk`, `net` and `core.clock`; their simulated twins in
`sim`. One contract suite runs on both, so code that is right behind the doors
in simulation is right behind them in production.

Waiting is asyncio's: a simulated loop has simulated timers. Nothing behind the
doors starts a thread; `Disk.sync` may use one, and that is its own affair.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from entrepot.core.faults import Faults, Uncaught

T = TypeVar("T")

Buffer = bytes | bytearray | memoryview


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970. May jump, also backwards."""

    def monotonic(self) -> float:
        """Seconds since some fixed point. Never goes back."""


class Entropy(Protocol):
    def token(self, size: int) -> bytes:
        """Bytes nobody can guess."""

    def below(self, end: int) -> int:
        """A whole number from 0 to end - 1, each as likely."""


class File(Protocol):
    """An open file without a cursor. Unbuffered: a write is the system's at once."""

    @property
    def path(self) -> str: ...

    def write(self, position: int, chunks: Sequence[Buffer]) -> int:
        """Write the chunks one after the other; return how many bytes went in.

        As with the system call, fewer bytes than offered is not an error.
        Raises OSError (ENOSPC, EIO).
        """

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def fileno(self) -> int | None:
        """The system's descriptor, for zero-copy; None where there is none."""

    def close(self) -> None:
        """Also happens when the last reference goes: a range in flight keeps its file."""


class Disk(Protocol):
    """A tree of files below one directory. Paths are relative, with `/` between parts.

    What survives a power failure: of a file, what was there at its last completed
    sync; of names (create, rename, remove), what was there at the last completed
    sync of their directory. Everything else may survive in part, or torn.
    """

    @property
    def files_max(self) -> int:
        """How many files to hold open at once, at most."""

    @property
    def boot(self) -> str:
        """Names the time since the machine started: as long as it is the same, everything
        that was written is there, synced or not. Empty when nobody can say."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing. Raises FileNotFoundError unless `create`."""

    def exists(self, path: str) -> bool: ...

    def names(self, directory: str) -> list[str]:
        """What the directory holds, sorted; empty when there is none."""

    def make_directory(self, path: str) -> None:
        """With its parents; fine when it is there. Syncs nothing."""

    def rename(self, old: str, new: str) -> None:
        """Atomic; replaces a file at `new`."""

    def remove(self, path: str) -> None:
        """A file. Fine when it is gone."""

    def remove_directory(self, path: str) -> None:
        """A directory with all it holds. Fine when it is gone."""

    async def discard(self, paths: Sequence[str]) -> list[OSError | None]:
        """Files, and directories with all they hold, however large. Fine when they are gone.

        One answer per path.
        """

    async def sync(
        self, files: Sequence[File], directories: Sequence[str] = ()
    ) -> list[OSError | None]:
        """Make the data of these files, then the names in these directories, permanent.

        One answer per file, then one per directory. Never to be retried after an error:
        the system may have dropped what it could not write. As a directory is everybody's,
        one that failed fails from then on.
        """

    def lock(self, path: str) -> None:
        """Hold this lock file until the process ends. Raises BlockingIOError when held."""


class FileRange(NamedTuple):
    """Bytes that are still in a file: the net sends them without copying where it can."""

    file: File
    position: int
    size: int


Chunk = Buffer | FileRange


class Receiver(Protocol):
    """One side of a connection, as the net sees it. All calls come from the loop."""

    def writable(self) -> memoryview:
        """Where the next bytes go. Never empty."""

    def received(self, size: int) -> None:
        """That many bytes were put there."""

    def drained(self) -> None:
        """The backlog, once above the link's high mark, is gone."""

    def closed(self, reason: str) -> None:
        """The link is gone, or the peer will send no more; called exactly once."""


class Unfinished(NamedTuple):
    """Input that came and is not dealt with yet."""

    size: int  # Bytes.
    number: int  # Of the oldest of it: with another number, it is other input.
    awaits_rest: bool  # A part of it is missing, and nothing but the peer keeps it from coming.


NOTHING_UNFINISHED = Unfinished(0, 0, False)


class ServingReceiver(Receiver, Protocol):
    """The side that was connected to: it has many peers, and says what it holds of each."""

    def unfinished(self) -> Unfinished:
        """Called after every change that the link knows of, so it costs little."""

    def refuse(self, reason: str) -> None:
        """End the connection, in the protocol's words where it has some."""


class Link(Protocol):
    """One connection's bytes."""

    @property
    def peer(self) -> str:
        """The other side's address, for logs."""

    @property
    def subject(self) -> str | None:
        """Whom the other side's certificate names, where one was asked for and is good."""

    @property
    def backlog(self) -> int:
        """Bytes taken by `send` that the system has not taken yet."""

    def send(self, chunks: Sequence[Chunk]) -> None:
        """One gathered write, at once if possible. Never blocks; sends in order.

        The chunks must not change afterwards. After `close` it does nothing.
        """

    def pause(self) -> None:
        """Stop reading, until `resume`: how a slow part slows its peer."""

    def resume(self) -> None: ...

    def close(self, reason: str) -> None:
        """Send what is queued, then close. Receiver.closed(reason) follows from the loop."""

    def abort(self, reason: str) -> None:
        """Close now and forget what is queued."""

    def guard(self, call: Callable[..., object], *arguments: object) -> None:
        """Call it on this peer's behalf: a mistake there, theirs or ours, ends this link only.

        Whatever runs later for a peer (from the loop, a timer, a commit) runs under its guard.
        """


class Worker(Protocol):
    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]:
        """Run what takes long; the loop goes on meanwhile."""


async def in_place(work: Callable[[], T], /) -> T:
    """Where there is no other place: a simulated world has no threads."""
    return work()


class Listener(Protocol):
    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    def close(self) -> None:
        """Accept no more. Links that are open stay open."""


class Net(Protocol):
    async def listen(
        self, host: str, port: int, accept: Callable[[Link], ServingReceiver]
    ) -> Listener:
        """Port 0 takes any free one. Raises OSError when the address is taken."""

    async def connect(self, host: str, port: int, attach: Callable[[Link], Receiver]) -> Link:
        """Raises OSError when nobody listens."""

    def close(self) -> None:
        """Drop every connection and listen no more. For the end of a process."""


@dataclass(frozen=True, slots=True)
class World:
    """The four doors together, as `server` and the simulator hand them in."""

    clock: Clock
    entropy: Entropy
    disk: Disk
    net: Net
    tls_net: Net | None = None  # The same net under TLS, where there is a certificate.
    faults: Faults = field(default_factory=Uncaught)  # Where our own mistakes are told.
