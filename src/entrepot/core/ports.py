"""The ports: time, randomness, disk and network; and object stores, for what leaves the disk.

Time, randomness, files, objects and connections are used through these protocols only. They are
implemented in `log.disk`, `log.object_store`, `net` and `core.clock`, and for simulations in
`sim`. One contract suite runs on both, so that what holds in a simulation holds in production.

Code waits with asyncio: a simulated loop has simulated timers. The broker starts no threads;
an implementation of `Disk` may use them.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from entrepot.core.coordinator import Coordinator
from entrepot.core.errors import StoreUnavailable
from entrepot.core.faults import Faults, Uncaught
from entrepot.core.measures import Traffic

T = TypeVar("T")

Buffer = bytes | bytearray | memoryview


class Clock(Protocol):
    def now_ms(self) -> int:
        """Return the wall time in milliseconds since 1970. It may jump, also backwards."""

    def monotonic(self) -> float:
        """Return seconds since some fixed point. They never go back."""


class Entropy(Protocol):
    def token(self, size: int) -> bytes:
        """Return cryptographically random bytes."""

    def below(self, end: int) -> int:
        """Return a random integer from 0 to `end` - 1, each as likely."""


class File(Protocol):
    """An open file without a cursor. Unbuffered: each write goes to the system at once."""

    @property
    def path(self) -> str: ...

    def write(self, position: int, chunks: Sequence[Buffer]) -> int:
        """Write the chunks one after the other; return how many bytes were written.

        As with the system call, fewer bytes than offered is not an error.
        Raises OSError (ENOSPC, EIO).
        """

    def read(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes; fewer only at the end of the file."""

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def fileno(self) -> int | None:
        """Return the file descriptor, for zero-copy; None where there is none."""

    def close(self) -> None:
        """Close the file. Also happens with the last reference: a range being sent keeps its
        file open."""


class Space(NamedTuple):
    """How much room a disk has, in bytes."""

    free: int  # That the broker may still use.
    size: int  # Of the whole disk.


class Disk(Protocol):
    """A tree of files below one directory. Paths are relative, with `/` between parts.

    What survives a power failure: of a file, what was there at its last completed
    sync; of names (create, rename, remove), what was there at the last completed
    sync of their directory. Everything else may survive in part, or torn.
    """

    @property
    def files_max(self) -> int:
        """Return how many files may be held open at once."""

    @property
    def boot(self) -> str:
        """Return an id of the machine's current boot; empty when it is not known.

        While it is the same, everything that was written is there, synced or not.
        """

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing. Raises FileNotFoundError unless `create`."""

    def exists(self, path: str) -> bool: ...

    def names(self, directory: str) -> list[str]:
        """Return the names in the directory, sorted; none when there is no such directory."""

    def make_directory(self, path: str) -> None:
        """Create the directory and its parents, if they are missing. Syncs nothing."""

    def rename(self, old: str, new: str) -> None:
        """Rename atomically; a file at `new` is replaced."""

    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""

    def remove_directory(self, path: str) -> None:
        """Remove a directory and its content, if it is there."""

    async def discard(self, paths: Sequence[str]) -> list[OSError | None]:
        """Remove files, and directories with their content, however large. What is missing is
        ignored.

        Returns an error or None for each path.
        """

    async def sync(
        self, files: Sequence[File], directories: Sequence[str] = ()
    ) -> list[OSError | None]:
        """Make the data of these files, then the names in these directories, permanent.

        Returns an error or None for each file, then for each directory. A failed sync must not be
        retried: the system may have dropped what it could not write. Because a directory is shared,
        one that failed fails from then on.
        """

    async def space(self) -> Space:
        """Return how much room there is where the files are. Raises OSError."""

    def lock(self, path: str) -> None:
        """Hold this lock file until the process ends. Raises BlockingIOError when another holds
        it."""


class ObjectStore(Protocol):
    """Objects by name, in a directory or a bucket elsewhere; `/` separates the parts of a name.

    An object appears whole or not at all. All calls block, so the broker makes them in a worker,
    and all raise StoreUnavailable.
    """

    def check(self) -> None:
        """Raise StoreUnavailable unless there is such a place, and objects can be written there."""

    def names(self, directory: str) -> list[str]:
        """Return the next part of all names below a directory, sorted; "" is the top."""

    def size(self, name: str) -> int | None:
        """Return the size in bytes; None if there is no such object."""

    def read(self, name: str, position: int = 0, size: int | None = None) -> bytes | None:
        """Return bytes of an object, fewer only at its end; None if there is no such object."""

    def write(self, name: str, chunks: Iterable[Buffer]) -> None:
        """Write an object, in the place of one with this name. It is permanent on return.

        An exception of `chunks` is passed on, and nothing has changed then.
        """


class OpenStore(Protocol):
    def __call__(self, address: str, /) -> ObjectStore:
        """Return the store at an address (`core.store_address`). Raises StoreUnavailable."""


def no_stores(address: str, /) -> ObjectStore:
    """Refuse: there are no stores in this world."""
    raise StoreUnavailable("there are no object stores here")


class FileRange(NamedTuple):
    """A range of bytes in a file, which the net sends without copying where it can."""

    file: File
    position: int
    size: int


Chunk = Buffer | FileRange


class Receiver(Protocol):
    """What a connection's input is passed to. All calls come from the event loop."""

    def writable(self) -> memoryview:
        """Return the buffer for the next bytes. It is never empty."""

    def received(self, size: int) -> None:
        """Process the bytes: `size` of them were put into the buffer."""

    def drained(self) -> None:
        """Go on sending: the backlog, which was above the link's high mark, is sent."""

    def closed(self, reason: str) -> None:
        """Release all resources: the link is closed, or the peer will send no more. Called once."""


class Unfinished(NamedTuple):
    """Input that was received and is not processed yet."""

    size: int  # Bytes.
    # Counts up; a different number means that the oldest unprocessed input is another one.
    number: int
    awaits_rest: bool  # It is incomplete, and only the peer can send the rest.


NOTHING_UNFINISHED = Unfinished(0, 0, False)


class ServingReceiver(Receiver, Protocol):
    """The receiver of an accepted connection: it tells how much unprocessed input it holds."""

    def unfinished(self) -> Unfinished:
        """Return how much it holds. It must be fast: the link calls it after every change."""

    def refuse(self, reason: str) -> None:
        """End the connection, with the protocol's own error where it has one."""


class Link(Protocol):
    """A connection, as the sender sees it."""

    @property
    def peer(self) -> str:
        """Return the peer's address, for logs."""

    @property
    def subject(self) -> str | None:
        """Return the subject of the peer's certificate; None without a valid one."""

    @property
    def backlog(self) -> int:
        """Return how many bytes given to `send` the system has not taken yet."""

    def send(self, chunks: Sequence[Chunk]) -> None:
        """Send the chunks in order, in one write and at once if possible. Never blocks.

        The chunks must not change afterwards. After `close` it does nothing.
        """

    def pause(self) -> None:
        """Stop reading from the peer until `resume`, to slow it down."""

    def resume(self) -> None: ...

    def close(self, reason: str) -> None:
        """Send what is queued, then close. Receiver.closed(reason) is called later, from the
        loop."""

    def abort(self, reason: str) -> None:
        """Close at once and drop what is queued."""

    def guard(self, call: Callable[..., object], *arguments: object) -> None:
        """Call a function for this peer: an exception in it closes this link only.

        Whatever runs later for a peer (from the loop, a timer, a commit) runs under its guard.
        """


class Worker(Protocol):
    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]:
        """Run a long computation without blocking the event loop."""


async def in_place(work: Callable[[], T], /) -> T:
    """Run the computation at once, where there are no threads: in simulations."""
    return work()


class Stores(NamedTuple):
    """Object stores, and the worker in which they are used."""

    open_store: OpenStore = no_stores
    worker: Worker = in_place


NO_STORES = Stores()


class Listener(Protocol):
    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    @property
    def traffic(self) -> Traffic:
        """Return the traffic of all links that were accepted here."""

    def close(self) -> None:
        """Stop accepting. Open links stay open."""


class Net(Protocol):
    async def listen(
        self, host: str, port: int, accept: Callable[[Link], ServingReceiver]
    ) -> Listener:
        """Listen for connections; port 0 takes any free one. Raises OSError when the address is
        in use."""

    async def connect(self, host: str, port: int, attach: Callable[[Link], Receiver]) -> Link:
        """Open a connection. Raises OSError when nobody listens."""

    def close(self) -> None:
        """Drop every connection and stop listening, at the end of the process."""


Address = tuple[str, int]  # Of a machine in digits, and a port.


class Datagrams(Protocol):
    """A socket for datagrams, each of which arrives whole, late, twice or never."""

    @property
    def address(self) -> Address: ...

    def send(self, data: bytes, to: Address) -> None:
        """Send at once or not at all. Never blocks, and never raises for what the net cannot do."""

    def close(self) -> None: ...


class DatagramNet(Protocol):
    async def bind(
        self, host: str, port: int, received: Callable[[bytes, Address], None]
    ) -> Datagrams:
        """Receive datagrams at an address; port 0 takes any free one. Raises OSError.

        One that is longer than what is allowed is passed on too, cut off but still too long.
        """


@dataclass(frozen=True, slots=True)
class World:
    """The implementations of all ports, as `server` and the simulator pass them in."""

    clock: Clock
    entropy: Entropy
    disk: Disk
    net: Net
    tls_net: Net | None = None  # For TLS; None when there is no certificate.
    faults: Faults = field(default_factory=Uncaught)  # Where internal errors are reported.
    # Returns how much unfinished input all connections hold.
    unfinished_bytes: Callable[[], int] = int
    open_store: OpenStore = no_stores
    # What the nodes of a cluster agree on. None means: what the configuration says, or nothing.
    coordinator: Coordinator | None = None
