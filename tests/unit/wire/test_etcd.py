"""etcd's messages as JSON, as its gateway takes and gives them."""

import json

import pytest

from entrepot.core.coordinator import Delete, Entry, Event, Expected, Put
from entrepot.core.errors import MalformedFrame
from entrepot.wire import etcd


def test_requests() -> None:
    assert json.loads(etcd.get_request("a", may_be_stale=True)) == {
        "key": "YQ==", "serializable": True,
    }  # fmt: skip
    assert json.loads(etcd.range_request("a/", may_be_stale=False)) == {
        "key": "YS8=", "range_end": "YTA=", "serializable": False,
    }  # fmt: skip
    assert json.loads(etcd.watch_request("", 7)) == {
        "create_request": {"key": "AA==", "range_end": "AA==", "start_revision": "7"}
    }
    transaction = etcd.transaction_request(
        [Expected("a", 2**40)], [Put("b", b"\0", 9), Delete("c")]
    )
    assert json.loads(transaction) == {
        "compare": [
            {"key": "YQ==", "target": "MOD", "result": "EQUAL", "mod_revision": str(2**40)}
        ],
        "success": [
            {"request_put": {"key": "Yg==", "value": "AA==", "lease": "9"}},
            {"request_delete_range": {"key": "Yw=="}},
        ],
    }
    assert etcd.lease_request(5) == b'{"ID":"5"}'
    assert etcd.grant_request(5) == b'{"TTL":"5"}'


def test_answers() -> None:
    found = etcd.decode(
        b'{"header":{"cluster_id":"14841639068965178418","revision":"8"},"count":"1","kvs":'
        b'[{"key":"w6k=","create_revision":"2","mod_revision":"7","version":"3","lease":"5"}]}',
        etcd.RangeAnswer,
    )
    assert found.header.revision == 8
    assert found.kvs[0].entry() == Entry("é", b"", 7, 5)
    watched = etcd.decode_streamed(
        b'{"result":{"header":{"revision":"9"},"events":[{"kv":{"key":"YQ==","value":"Yg==",'
        b'"mod_revision":"8"}},{"type":"DELETE","kv":{"key":"YQ==","mod_revision":"9"}}]}}',
        etcd.WatchAnswer,
    )
    assert isinstance(watched, etcd.WatchAnswer)
    assert [each.event() for each in watched.events] == [Event("a", b"b", 8), Event("a", None, 9)]
    failed = etcd.decode_streamed(b'{"error":{"grpc_code":14,"message":"x"}}', etcd.WatchAnswer)
    assert isinstance(failed, etcd.ErrorAnswer)
    assert failed.text == "x"


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"header":{"revision":"x"}}', b'{"kvs":[1]}'])
def test_what_is_no_answer(data: bytes) -> None:
    with pytest.raises(MalformedFrame):
        etcd.decode(data, etcd.RangeAnswer)
    with pytest.raises(MalformedFrame):
        etcd.decode(b'{"header":{},"kvs":[{"key":"/w=="}]}', etcd.RangeAnswer).kvs[0].entry()
