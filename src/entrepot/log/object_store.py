"""The real object stores: a directory, or a bucket that speaks S3.

An archive outlives the broker and is read by others, so it is not part of the data directory and
not `disk`'s: its files may be read by the group of the broker's user. A directory that is missing
is a store that is away, and is not created: it may be the mount point of a disk that is.

What a bucket needs to know (region, keys, endpoint) comes from the environment, by the names that
Amazon's own tools use; an address holds no secrets.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator
from datetime import timedelta
from importlib import import_module
from typing import Any

from entrepot.core.errors import StoreUnavailable
from entrepot.core.limits import MIB
from entrepot.core.ports import Buffer, ObjectStore
from entrepot.core.store_address import parse_store_address

_FILE_MODE, _DIRECTORY_MODE = 0o640, 0o750
_PART = ".part"  # An object that is being written.
_SYNC_BYTES = 8 * MIB  # So that nobody on the same disk waits for a large sync.
_UPLOAD_BYTES = 8 * MIB  # Of one part of an upload; two are under way at once.
_CONNECT_S, _ANSWER_S, _RETRY_S, _RETRIES_MAX = 5, 60, 10, 2


def open_store(address: str, /) -> ObjectStore:
    """Return the store at an address. Raises StoreUnavailable."""
    try:
        place = parse_store_address(address)
    except ValueError as error:
        raise StoreUnavailable(f"{address} {error}") from None
    if place.bucket is None:
        return DirectoryStore(place.path)
    return BucketStore(_bucket(place.bucket), place.path)


class DirectoryStore:
    def __init__(self, root: str) -> None:
        self._root = root

    def check(self) -> None:
        self._check_root()
        if not os.access(self._root, os.R_OK | os.W_OK | os.X_OK):
            raise StoreUnavailable(f"the directory {self._root} cannot be written to")

    def names(self, directory: str) -> list[str]:
        self._check_root()
        path = self._full(directory)
        with _told():
            try:
                found = os.listdir(path)
            except (FileNotFoundError, NotADirectoryError):
                return []
        # A topic's directory may have such a name, too.
        return sorted(
            name for name in found if not name.endswith(_PART) or os.path.isdir(f"{path}/{name}")
        )

    def size(self, name: str) -> int | None:
        self._check_root()
        with _told():
            try:
                return os.stat(self._full(name)).st_size
            except FileNotFoundError:
                return None

    def read(self, name: str, position: int = 0, size: int | None = None) -> bytes | None:
        self._check_root()
        with _told():
            try:
                number = os.open(self._full(name), os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return None
            try:
                wanted = os.fstat(number).st_size - position if size is None else size
                return _read_all(number, position, max(0, wanted))
            finally:
                os.close(number)

    def write(self, name: str, chunks: Iterable[Buffer]) -> None:
        self._check_root()
        path = self._full(name)
        with _told():
            self._make_directory(os.path.dirname(path))
            number = os.open(path + _PART, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, _FILE_MODE)
        try:
            unsynced = 0
            for chunk in chunks:
                with _told():
                    _write_all(number, chunk)
                    unsynced += len(chunk)
                    if unsynced >= _SYNC_BYTES:
                        os.fsync(number)
                        unsynced = 0
            with _told():
                os.fsync(number)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(path + _PART)
            raise
        finally:
            os.close(number)
        with _told():
            os.replace(path + _PART, path)
            _sync_directory(os.path.dirname(path))

    def _make_directory(self, path: str) -> None:
        """Create a directory below the root, and its parents, and sync each new name."""
        if os.path.isdir(path):
            return
        parent = os.path.dirname(path)
        self._make_directory(parent)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, _DIRECTORY_MODE)
        _sync_directory(parent)

    def _check_root(self) -> None:
        if not os.path.isdir(self._root):
            raise StoreUnavailable(f"there is no directory {self._root}")

    def _full(self, name: str) -> str:
        return f"{self._root}/{name}"


def _read_all(number: int, position: int, size: int) -> bytes:
    data = os.pread(number, size, position)
    while 0 < len(data) < size:  # A read may fall short before the end of the file.
        more = os.pread(number, size - len(data), position + len(data))
        if not more:
            break
        data += more
    return data


def _write_all(number: int, chunk: Buffer) -> None:
    view = memoryview(chunk)
    while view:
        view = view[os.write(number, view) :]


def _sync_directory(path: str) -> None:
    number = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Raise StoreUnavailable for what the system refuses."""
    try:
        yield
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        reason = error.strerror or errno.errorcode.get(error.errno or 0, "it failed")
        raise StoreUnavailable(f"{place}{reason}") from None


class BucketStore:
    """Objects through `obstore`, which tries again by itself before it gives up."""

    def __init__(self, store: Any, prefix: str) -> None:
        self._library = _library("obstore")
        self._missing: type[Exception] = _library("obstore.exceptions").NotFoundError
        self._store = store
        self._prefix = f"{prefix}/" if prefix else ""

    def check(self) -> None:
        self.names("")

    def names(self, directory: str) -> list[str]:
        top = self._prefix + (f"{directory}/" if directory else "")
        try:
            found = self._library.list_with_delimiter(self._store, top.rstrip("/") or None)
        except Exception as error:
            raise _problem(error) from None
        paths = [*found["common_prefixes"], *(each["path"] for each in found["objects"])]
        return sorted(str(path).rstrip("/").rpartition("/")[2] for path in paths)

    def size(self, name: str) -> int | None:
        try:
            return int(self._library.head(self._store, self._prefix + name)["size"])
        except (self._missing, FileNotFoundError):
            return None
        except Exception as error:
            raise _problem(error) from None

    def read(self, name: str, position: int = 0, size: int | None = None) -> bytes | None:
        path = self._prefix + name
        try:
            if size is None:
                return bytes(self._library.get(self._store, path).bytes())[position:]
            wanted = {"range": (position, position + size)}
            return bytes(self._library.get(self._store, path, options=wanted).bytes())
        except (self._missing, FileNotFoundError):
            return None
        except Exception as error:
            length = self.size(name)
            if length is None:
                return None
            if position >= length:  # Nothing is there to read.
                return b""
            raise _problem(error) from None

    def write(self, name: str, chunks: Iterable[Buffer]) -> None:
        path, failures = self._prefix + name, list[Exception]()

        def watched() -> Iterator[Buffer]:
            try:
                yield from chunks
            except Exception as error:
                failures.append(error)
                raise

        try:
            if isinstance(chunks, list):  # It is small, and need not be sent in parts.
                self._library.put(self._store, path, b"".join(chunks), use_multipart=False)
            else:
                self._library.put(
                    self._store, path, watched(), chunk_size=_UPLOAD_BYTES, max_concurrency=2
                )
        except Exception as error:
            raise failures[0] if failures else _problem(error) from None


def _bucket(name: str) -> Any:
    endpoint = os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT") or ""
    try:
        return _library("obstore.store").S3Store(
            name,
            client_options={
                "allow_http": endpoint.startswith("http://"),
                "connect_timeout": timedelta(seconds=_CONNECT_S),
                "timeout": timedelta(seconds=_ANSWER_S),
            },
            retry_config={
                "max_retries": _RETRIES_MAX,
                "retry_timeout": timedelta(seconds=_RETRY_S),
            },
        )
    except StoreUnavailable:
        raise
    except Exception as error:
        raise _problem(error) from None


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise StoreUnavailable(
            "a bucket needs the package obstore: pip install 'entrepot[tier]'"
        ) from None


def _problem(error: Exception) -> StoreUnavailable:
    return StoreUnavailable(f"S3: {str(error).strip().partition(chr(10))[0]}")
