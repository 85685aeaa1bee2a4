"""What every object store does: a directory, a bucket, and the simulated one.

The bucket is `obstore`'s own, in memory; with ENTREPOT_S3=http://host:port/bucket it is that one,
too. compat/connect/run.sh starts such a server.
"""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from entrepot.core.errors import StoreUnavailable
from entrepot.core.ports import ObjectStore
from entrepot.log.object_store import BucketStore, DirectoryStore, open_store
from sim.object_store import MemoryStore

S3 = os.environ.get("ENTREPOT_S3", "")


@pytest.fixture(params=["directory", "bucket", "memory", *(["s3"] if S3 else [])])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ObjectStore:
    match request.param:
        case "directory":
            return DirectoryStore(str(tmp_path))
        case "bucket":
            library = pytest.importorskip("obstore.store")
            return BucketStore(library.MemoryStore(), "some/prefix")
        case "s3":
            return bucket(monkeypatch)
        case _:
            return MemoryStore()


def bucket(monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    endpoint, _, name = S3.rpartition("/")
    access = {"ACCESS_KEY_ID": "id", "SECRET_ACCESS_KEY": "secret", "REGION": "us-east-1"}
    for key, value in (access | {"ENDPOINT_URL": endpoint}).items():
        monkeypatch.setenv(f"AWS_{key}", value)
    return open_store(f"s3://{name}/contract-{uuid.uuid4()}")


def test_an_object_is_what_was_written(store: ObjectStore) -> None:
    store.check()
    store.write("a/b/c", [b"one", memoryview(b"two")])
    assert store.read("a/b/c") == b"onetwo"
    assert store.size("a/b/c") == 6


def test_many_chunks(store: ObjectStore) -> None:
    chunks = [bytes([number]) * 1_000_003 for number in range(12)]
    store.write("large", iter(chunks))
    whole = b"".join(chunks)
    assert store.size("large") == len(whole)
    assert store.read("large") == whole
    assert store.read("large", 1_000_000, 10) == whole[1_000_000:1_000_010]


def test_a_part(store: ObjectStore) -> None:
    store.write("a", [b"0123456789"])
    assert store.read("a", 3, 4) == b"3456"
    assert store.read("a", 3) == b"3456789"
    assert store.read("a", 8, 100) == b"89", "fewer only at the end"
    assert store.read("a", 10, 5) == b""
    assert store.read("a", 20, 5) == b""


def test_what_is_missing(store: ObjectStore) -> None:
    assert store.read("a/b") is None
    assert store.read("a/b", 5, 5) is None
    assert store.size("a/b") is None
    assert store.names("") == []
    assert store.names("a") == []


def test_a_write_replaces(store: ObjectStore) -> None:
    store.write("a", [b"the first, which is longer"])
    store.write("a", [b"the second"])
    assert store.read("a") == b"the second"


def test_names(store: ObjectStore) -> None:
    for name in ("b/y/1", "b/x", "a", "b/y/2", "bb/z", "c.part/1"):
        store.write(name, [b"1"])
    assert store.names("") == ["a", "b", "bb", "c.part"]
    assert store.names("b") == ["x", "y"]
    assert store.names("b/y") == ["1", "2"]


@pytest.mark.parametrize("before", [None, b"the first"])
def test_a_source_that_fails_changes_nothing(store: ObjectStore, before: bytes | None) -> None:
    if before is not None:
        store.write("a/b", [before])

    def chunks() -> Iterator[bytes]:
        yield b"x" * 9_000_000
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        store.write("a/b", chunks())
    assert store.read("a/b") == before
    assert store.names("a") == ([] if before is None else ["b"])


# --- those that can be away


def test_a_missing_directory_is_a_store_that_is_away(tmp_path: Path) -> None:
    store = DirectoryStore(str(tmp_path / "mount"))
    for call in (
        store.check,
        lambda: store.names(""),
        lambda: store.size("a"),
        lambda: store.read("a"),
        lambda: store.write("a", [b"1"]),
    ):
        with pytest.raises(StoreUnavailable, match="there is no directory"):
            call()
    assert not (tmp_path / "mount").exists()


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"")
    with pytest.raises(StoreUnavailable):
        DirectoryStore(str(tmp_path)).write("t/x", [b"1"])


def test_a_bucket_that_fails_while_nothing_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing is not empty: an empty manifest would be a damaged one."""
    library = pytest.importorskip("obstore.store")
    store = BucketStore(library.MemoryStore(), "")
    failing = SimpleNamespace(head=store._library.head, get=_fail)
    monkeypatch.setattr(store, "_library", failing)
    assert store.read("a") is None
    assert store.read("a", 5, 5) is None


def _fail(*_: object, **__: object) -> None:
    raise OSError("500")


def test_a_simulated_store_that_is_away() -> None:
    store = MemoryStore()
    store.away = "gone"
    with pytest.raises(StoreUnavailable, match="gone"):
        store.check()


@pytest.mark.parametrize(
    "address",
    ["", "/archive", "file://archive", "file:///", "s3://", "http://x/y", "file:///a/../b"],
)
def test_no_address(address: str) -> None:
    with pytest.raises(StoreUnavailable):
        open_store(address)


def test_a_bucket_that_nobody_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("obstore")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with pytest.raises(StoreUnavailable, match="S3: "):
        open_store("s3://bucket/prefix").check()
