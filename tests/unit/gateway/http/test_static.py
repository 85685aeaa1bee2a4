"""The console's files: cached, compressed, and with a policy that allows no others."""

import gzip

import pytest

from entrepot.console.files import page_files
from entrepot.gateway.http.static import StaticFiles
from entrepot.wire.http.request import Request

FILES = {"index.html": b"<!doctype html>" * 50, "app.js": b"1", "icon.svg": b"<svg/>"}


def ask(path: str, method: str = "GET", **headers: str) -> tuple[int, bytes, dict[str, str]] | None:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = StaticFiles(lambda: FILES)(Request(method, path, sent, b""))
    return None if answer is None else (answer.status, bytes(answer.body), dict(answer.headers))


def test_a_file_is_sent_once() -> None:
    first = ask("/")
    assert first is not None
    status, body, headers = first
    assert (status, body) == (200, FILES["index.html"])
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    again = ask("/", if_none_match=headers["ETag"])
    assert again is not None
    assert (again[0], again[1], again[2]["ETag"]) == (304, b"", headers["ETag"])
    other = ask("/", if_none_match='"other"')
    assert other is not None
    assert other[0] == 200


def test_it_is_compressed_for_who_can_read_that() -> None:
    answer = ask("/", accept_encoding="gzip, br")
    assert answer is not None
    assert answer[2]["Content-Encoding"] == "gzip"
    assert len(answer[1]) < len(FILES["index.html"])
    assert gzip.decompress(answer[1]) == FILES["index.html"]


def test_the_policy_allows_nothing_within_a_page() -> None:
    answer = ask("/console/app.js")
    assert answer is not None
    policy = answer[2]["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy


@pytest.mark.parametrize(
    "path", ["/api/overview", "/metrics", "/x", "/console/", "/console/../x", "/console/app.js/x"]
)
def test_the_rest_is_for_others(path: str) -> None:
    assert ask(path) is None
    assert ask("/", "POST") is None


def test_the_page_is_in_the_package_and_has_nothing_within() -> None:
    files = page_files()
    index = files["index.html"].decode()
    for name in files:
        assert name.rpartition(".")[2] in ("html", "css", "js", "svg")
    assert "style=" not in index
    assert "onclick" not in index
    assert "://" not in index
    for part in index.split('"/console/')[1:]:
        assert part.partition('"')[0] in files
    assert sum(map(len, files.values())) < 200 * 1_024
