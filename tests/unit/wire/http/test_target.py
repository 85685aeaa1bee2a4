"""Paths are cut before they are decoded, and what cannot be decoded is refused."""

import pytest

from entrepot.wire.http.request import HttpError
from entrepot.wire.http.target import RequestTarget, split


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        ("/", ("",), {}),
        ("/api/queues/%2F/a%20b", ("api", "queues", "/", "a b"), {}),
        ("/a/?x=1&y=a+b%2B&x=2&z", ("a", ""), {"x": "2", "y": "a b+", "z": ""}),
        ("/%C3%BC", ("ü",), {}),
        ("http://host:1/a?b=c", ("a",), {"b": "c"}),
        ("http://host", ("",), {}),
        ("//host/a", ("", "host", "a"), {}),
    ],
)
def test_parts(target: str, path: tuple[str, ...], query: dict[str, str]) -> None:
    assert split(target) == RequestTarget(path, query)


@pytest.mark.parametrize(
    "target", ["*", "host:443", "/%FF", "/?x=%FF", "/?" + "a&" * 200, "ftp://x/"]
)
def test_what_is_none(target: str) -> None:
    with pytest.raises(HttpError) as caught:
        split(target)
    assert caught.value.status == 400
