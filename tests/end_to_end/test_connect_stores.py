"""Objects and topics, both ways: a directory here, and a bucket where one says so.

ENTREPOT_S3=http://host:port/bucket names an empty one; compat/connect/run.sh starts a server.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from entrepot.testing import Broker
from tests.end_to_end.connecting import describe, received, run_once, send
from tests.end_to_end.transacting import create

S3 = os.environ.get("ENTREPOT_S3", "")


class DirectoryTrial:
    def __init__(self, directory: Path) -> None:
        self._root = directory / "store"
        self.options: dict[str, Any] = {"path": str(self._root)}

    def names(self) -> list[str]:
        files = [path for path in self._root.rglob("*") if path.is_file()]
        return sorted(
            path.relative_to(self._root).as_posix() for path in files if path.name[0] != "."
        )

    def read(self, name: str) -> bytes:
        return (self._root / name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


class BucketTrial:
    def __init__(self, prefix: str) -> None:
        import obstore
        import obstore.store

        endpoint, _, bucket = S3.rpartition("/")
        self._library: Any = obstore
        self._prefix = f"{prefix}/"
        access = {"access_key_id": "id", "secret_access_key": "secret", "region": "us-east-1"}
        self.options = {"url": f"s3://{bucket}/{prefix}", "endpoint_url": endpoint, **access}
        self._store = obstore.store.S3Store(
            bucket, endpoint=endpoint, client_options={"allow_http": True}, **access
        )

    def names(self) -> list[str]:
        listed = self._library.list(self._store, self._prefix).collect()
        return sorted(entry["path"].removeprefix(self._prefix) for entry in listed)

    def read(self, name: str) -> bytes:
        return bytes(self._library.get(self._store, self._prefix + name).bytes())

    def write(self, name: str, data: bytes) -> None:
        self._library.put(self._store, self._prefix + name, data)


@pytest.fixture(params=["directory", *(["s3"] if S3 else [])])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> DirectoryTrial | BucketTrial:
    name = "".join(filter(str.isalnum, request.node.name))
    return DirectoryTrial(tmp_path) if request.param == "directory" else BucketTrial(name)


def lines(data: bytes) -> list[Any]:
    return [json.loads(line) for line in data.splitlines()]


def test_objects_are_named_by_what_they_hold(
    server: Broker, store: DirectoryTrial | BucketTrial, tmp_path: Path
) -> None:
    topic = "stored-" + store.__class__.__name__
    create(server.bootstrap, topic, 1)
    send(server.bootstrap, topic, '{"n":0}', '{"n":1}', '{"n":2}')
    settings = {"topic": topic, "options": store.options, "batch": {"records": 2}}
    path = describe(tmp_path, topic, "store-sink", **settings)
    run_once(server.bootstrap, path)
    run_once(server.bootstrap, path)
    send(server.bootstrap, topic, '{"n":3}')
    run_once(server.bootstrap, path)
    assert store.names() == [
        f"{topic}/0/{first:020}-{last:020}.jsonl" for first, last in ((0, 1), (2, 2), (3, 3))
    ]
    found = [line for name in store.names() for line in lines(store.read(name))]
    assert found == [{"n": n} for n in range(4)]


def test_what_a_sink_wrote_a_source_reads(
    server: Broker, store: DirectoryTrial | BucketTrial, tmp_path: Path
) -> None:
    topic = "rows-" + store.__class__.__name__
    create(server.bootstrap, topic, 2)
    rows = [(f"k{n}", f'{{"id":{n},"name":"n{n}"}}') for n in range(50)]
    send(server.bootstrap, topic, *rows)
    columns = {"id": "int64", "name": "string"}
    options = {**store.options, "format": "parquet", "columns": columns}
    sink = describe(tmp_path, f"{topic}-out", "store-sink", topic=topic, options=options)
    run_once(server.bootstrap, sink)
    options = {**store.options, "format": "parquet", "key": "id"}
    source = describe(
        tmp_path,
        f"{topic}-in",
        "store-source",
        topic=f"{topic}-back",
        batch={"records": 7},
        options=options,
    )
    run_once(server.bootstrap, source)
    run_once(server.bootstrap, source)
    back = received(server.bootstrap, f"{topic}-back")
    assert sorted(json.loads(each.value())["id"] for each in back) == list(range(50))
    assert all(int(each.key()) == json.loads(each.value())["id"] for each in back)


def test_new_objects_are_read_in_the_order_of_their_names(
    server: Broker, store: DirectoryTrial | BucketTrial, tmp_path: Path
) -> None:
    topic = "objects-" + store.__class__.__name__
    options = {**store.options, "format": "lines", "names": "*.txt"}
    path = describe(tmp_path, topic, "store-source", topic=topic, options=options)
    store.write("b/2030-01-01.txt", b"one\ntwo")
    store.write("b/notes.md", b"no")
    run_once(server.bootstrap, path)
    store.write("b/2030-01-02.txt", b"three\n")
    store.write("a/2030-01-01.txt", b"four\n")  # A directory of its own, with an order of its own.
    run_once(server.bootstrap, path)
    assert [each.value() for each in received(server.bootstrap, topic)] == [
        b"one", b"two", b"four", b"three",
    ]  # fmt: skip
