"""Where objects are: a directory, or a bucket that speaks S3.

An object has a name with `/` in it, appears whole or not at all, and is not changed. The
names below a prefix can be listed. That is all that the connectors need of a store.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from entrepot.connect.disk import NEW, write_whole
from entrepot.connect.interface import ConfigError, ConnectError, Unavailable
from entrepot.connect.registry import need
from entrepot.connect.threads import OneThread
from entrepot.core.limits import MIB

OBJECT_BYTES_MAX = 256 * MIB  # An object is read as a whole.
_SCHEME = "s3://"


class Store(Protocol):
    async def names(self, prefix: str) -> list[str]:
        """All below the prefix, sorted."""

    async def read(self, name: str) -> bytes:
        """All of it; raises ConnectError when that is too much."""

    async def write(self, name: str, data: bytes) -> None:
        """It is there for good when it returns."""

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    path: str | None = None  # A directory; or instead:
    url: str | None = None  # s3://bucket/prefix
    endpoint_url: str | None = None  # Of a store that is not Amazon's.
    region: str | None = None
    access_key_id: str | None = None  # Without: what the environment offers.
    secret_access_key: str | None = None

    def place_problem(self) -> str | None:
        if (self.path is None) == (self.url is None):
            return "path: a directory, or a bucket in url; not both"
        if self.url is not None and not self.url.removeprefix(_SCHEME).partition("/")[0]:
            return "url: as in s3://bucket/prefix"
        if self.url is not None and not self.url.startswith(_SCHEME):
            return "url: as in s3://bucket/prefix"
        return None


def open_store(options: StoreOptions, name: str) -> tuple[Store, str]:
    """The store, and what all names in it begin with."""
    if options.path is not None:
        return DirectoryStore(options.path, name), ""
    assert options.url is not None
    bucket, _, prefix = options.url.removeprefix(_SCHEME).partition("/")
    prefix = prefix.strip("/")
    return S3Store(bucket, options), f"{prefix}/" if prefix else ""


class DirectoryStore:
    def __init__(self, path: str, name: str) -> None:
        self._root = Path(path)
        self._thread = OneThread(name)

    async def names(self, prefix: str) -> list[str]:
        return await self._thread.run(self._names, prefix)

    async def read(self, name: str) -> bytes:
        return await self._thread.run(self._read, name)

    async def write(self, name: str, data: bytes) -> None:
        await self._thread.run(self._write, name, data)

    async def close(self) -> None:
        self._thread.close()

    def _names(self, prefix: str) -> list[str]:
        found = []
        top = self._root / prefix.rpartition("/")[0]
        for directory, _, files in os.walk(top):
            relative = Path(directory).relative_to(self._root).as_posix()
            base = "" if relative == "." else f"{relative}/"
            found += [base + file for file in files if not file.endswith(NEW)]
        return sorted(name for name in found if name.startswith(prefix))

    def _read(self, name: str) -> bytes:
        try:
            _check_size(name, (self._root / name).stat().st_size)
            return (self._root / name).read_bytes()
        except OSError as error:
            raise Unavailable(f"{self._root / name}: {error.strerror}") from None

    def _write(self, name: str, data: bytes) -> None:
        path = self._root / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, data)
        except OSError as error:
            raise Unavailable(f"{path}: {error.strerror}") from None


class S3Store:
    def __init__(self, bucket: str, options: StoreOptions) -> None:
        self._library = need("obstore", "obstore", "options.url")
        self._errors = need("obstore.exceptions", "obstore", "options.url")
        stores = need("obstore.store", "obstore", "options.url")
        given = {
            "endpoint": options.endpoint_url,
            "region": options.region,
            "access_key_id": options.access_key_id,
            "secret_access_key": options.secret_access_key,
        }
        is_plain = (options.endpoint_url or "").startswith("http://")
        try:
            self._store = stores.S3Store(
                bucket,
                client_options={"allow_http": is_plain},
                **{key: value for key, value in given.items() if value is not None},
            )
        except Exception as error:
            raise ConfigError(f"options.url: {_first_line(error)}") from None

    async def names(self, prefix: str) -> list[str]:
        found: list[str] = []
        try:
            async for chunk in self._library.list(self._store, prefix.rstrip("/") or None):
                found += [entry["path"] for entry in chunk]
        except Exception as error:
            raise self._problem(error) from None
        return sorted(name for name in found if name.startswith(prefix))

    async def read(self, name: str) -> bytes:
        try:
            answer = await self._library.get_async(self._store, name)
            _check_size(name, answer.meta["size"])
            return bytes(await answer.bytes_async())
        except ConnectError:
            raise
        except Exception as error:
            raise self._problem(error) from None

    async def write(self, name: str, data: bytes) -> None:
        try:
            await self._library.put_async(self._store, name, data)
        except Exception as error:
            raise self._problem(error) from None

    async def close(self) -> None:
        """Nothing is held open."""

    def _problem(self, error: Any) -> ConnectError:
        """The library has tried again by itself; what it says is for good only if it is so."""
        lasting = (
            self._errors.NotFoundError,
            self._errors.PermissionDeniedError,
            self._errors.UnauthenticatedError,
        )
        kind = ConnectError if isinstance(error, lasting) else Unavailable
        return kind(f"S3: {_first_line(error)}")


def _check_size(name: str, size: int) -> None:
    if size > OBJECT_BYTES_MAX:
        raise ConnectError(f"{name} has {size} bytes, more than {OBJECT_BYTES_MAX}")


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
