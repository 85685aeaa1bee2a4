"""What a simulated disk holds, and what of it is left when the power fails.

Everything exists twice: as the program sees it (the page cache) and as the platter has it.
A write, truncation or change of a name happens in the first at once and is remembered, in
order, until a sync that began later makes it permanent. When the power fails, chance
decides what became of the rest, within what a journalling file system can do:

- Of a file's writes, each page has the state after some of them: all, none, the first few;
  a torn page has a different state in each of its sectors. A sector is never torn.
- Sizes and truncations happened up to some point, which is another one: the file may be
  shorter than its data, or longer with zeros. What was written after a truncation is there
  only if the truncation is.
- Of the changes of names, any may have happened and any may not, whatever their order;
  often as orderly as a file system with a journal has it. A rename is whole or not there.
  A file whose data was synced is still gone if its name was not.
"""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Literal, NamedTuple

# Which changes of names a lost one takes along: none, the later ones of its directory, or all
# later ones.
Order = Literal["none", "directory", "journal"]

SECTOR_BYTES = 512
PAGE_SECTORS = 8


class Write(NamedTuple):
    position: int
    data: bytes

    def apply(self, image: bytearray) -> None:
        if len(image) < self.position:
            _resize(image, self.position)
        image[self.position : self.position + len(self.data)] = self.data


class Resize(NamedTuple):
    size: int

    def apply(self, image: bytearray) -> None:
        _resize(image, self.size)


class FileNode:
    """One file's bytes, whatever it is called."""

    def __init__(self, content: bytes | bytearray = b"") -> None:
        self.content = bytearray(content)  # What the program sees.
        self.durable = bytearray(content)  # What the platter has.
        self.pending: list[Write | Resize] = []  # What makes the second the first.
        self._settled = 0  # How many were pending before these.

    def change(self, change: Write | Resize) -> None:
        change.apply(self.content)
        self.pending.append(change)

    def mark(self) -> int:
        return self._settled + len(self.pending)

    def settle(self, mark: int, random: Random | None = None) -> None:
        """What came before the mark is permanent; with chance given, only some of it."""
        count = max(0, mark - self._settled)  # Another sync may have been faster.
        covered = self.pending[:count]
        if random is None:
            for change in covered:
                change.apply(self.durable)
        else:
            self.durable = _survivor(self.durable, covered, random)
        del self.pending[:count]
        self._settled += count

    def after_power_loss(self, random: Random) -> "FileNode":
        return FileNode(_survivor(self.durable, self.pending, random))


class Directory:
    def __init__(self) -> None:
        self.names: dict[str, FileNode | Directory] = {}
        self.durable: dict[str, FileNode | Directory] = {}

    def after_power_loss(self, random: Random) -> "Directory":
        survivor = Directory()
        for name, node in sorted(self.durable.items()):
            survivor.names[name] = survivor.durable[name] = node.after_power_loss(random)
        return survivor


class Edit(NamedTuple):
    directory: Directory
    name: str
    node: FileNode | Directory | None  # None: the name is gone.


class _Change(NamedTuple):
    """Edits that happen together. Creating or removing is one edit, renaming two."""

    serial: int
    edits: tuple[Edit, ...]

    def apply_durable(self) -> None:
        for directory, name, node in self.edits:
            _set(directory.durable, name, node)


class Tree:
    """Directories and the changes of names that are not permanent yet."""

    def __init__(self, root: Directory) -> None:
        self.root = root
        self._pending: list[_Change] = []
        self._serial = 0

    def change(self, *edits: Edit) -> None:
        for directory, name, node in edits:
            _set(directory.names, name, node)
        self._serial += 1
        self._pending.append(_Change(self._serial, edits))

    def mark(self) -> int:
        return self._serial

    def settle(self, directory: Directory, mark: int) -> None:
        """A directory's changes before the mark, and what must have happened before them."""
        needed = {directory}
        kept: list[_Change] = []
        settled: list[_Change] = []
        for change in reversed(self._pending):
            touched = [edit.directory for edit in change.edits]
            if change.serial <= mark and not needed.isdisjoint(touched):
                needed.update(touched)
                settled.append(change)
            else:
                kept.append(change)
        for change in reversed(settled):
            change.apply_durable()
        self._pending = kept[::-1]

    def after_power_loss(self, random: Random, order: Order | None = None) -> "Tree":
        """Some of the changes happened: any of them, or only first ones."""
        chance_lost = random.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        order = order or random.choice(("none", "none", "directory", "journal"))
        broken: set[Directory] = set()
        for change in self._pending:
            touched = [edit.directory for edit in change.edits]
            follows = order == "journal" or not broken.isdisjoint(touched)
            if (broken and follows) or random.random() < chance_lost:
                if order != "none":
                    broken.update(touched)
            else:
                change.apply_durable()
        return Tree(self.root.after_power_loss(random))


def _survivor(durable: bytearray, changes: Sequence[Write | Resize], random: Random) -> bytearray:
    """What the platter had, and what chance made of the changes since."""
    image = bytearray(durable)
    sized = random.choice((0, len(changes), random.randint(0, len(changes))))
    if random.random() < 0.5:  # As orderly as most crashes are: the first few, whole.
        for change in changes[:sized]:
            change.apply(image)
        return image
    written = _written_end(len(durable), changes, sized)
    fates: dict[int, list[int]] = {}  # By page and sector: how many changes it has seen.
    size = len(image)
    for index, change in enumerate(changes):
        if isinstance(change, Resize):
            if index < sized:
                change.apply(image)
                size = change.size
            continue
        if index < sized:
            size = max(size, change.position + len(change.data))
        for sector, part in _sectors(change):
            page = sector // PAGE_SECTORS
            if page not in fates:
                fates[page] = _fate(written, random)
            if index < fates[page][sector % PAGE_SECTORS]:
                part.apply(image)
    _resize(image, size)
    return image


def _written_end(size: int, changes: Sequence[Write | Resize], sized: int) -> int:
    """The first cut that did not happen: nothing written after it can be on the platter."""
    for index, change in enumerate(changes):
        if isinstance(change, Write):
            size = max(size, change.position + len(change.data))
            continue
        if index >= sized and change.size < size:
            return index
        size = change.size
    return len(changes)


def _fate(written: int, random: Random) -> list[int]:
    """For each sector of a page, how many of the changes have reached it."""
    roll = random.random()
    if roll < 0.3:
        return [written] * PAGE_SECTORS
    if roll < 0.5:
        return [0] * PAGE_SECTORS
    if roll < 0.7:
        return [random.randint(0, written)] * PAGE_SECTORS
    return [random.randint(0, written) for _ in range(PAGE_SECTORS)]


def _sectors(write: Write) -> Iterator[tuple[int, Write]]:
    """A write cut at the borders of sectors, with their numbers."""
    position, data = write
    start = 0
    while start < len(data):
        sector, inside = divmod(position + start, SECTOR_BYTES)
        end = start + SECTOR_BYTES - inside
        yield sector, Write(position + start, data[start:end])
        start = end


def _resize(image: bytearray, size: int) -> None:
    if size < len(image):
        del image[size:]
    else:
        image.extend(bytes(size - len(image)))


def _set(
    names: dict[str, FileNode | Directory], name: str, node: FileNode | Directory | None
) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


def size_of(directory: Directory) -> int:
    return sum(
        size_of(node) if isinstance(node, Directory) else len(node.content)
        for node in directory.names.values()
    )
