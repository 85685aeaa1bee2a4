"""When a message is sent again, and which addresses are allowed."""

import json

import pytest

from entrepot.gateway.sqs.sns import delivery_policy, url
from entrepot.wire.sqs.errors import SqsError


def delays(**retries: object) -> list[float]:
    read = delivery_policy.read(json.dumps({"healthyRetryPolicy": retries}))
    return [round(each, 1) for each in read.delays_s]


def test_as_aws_without_a_policy() -> None:
    policy = delivery_policy.read("")
    assert (policy.delays_s, policy.rate) == ((20.0, 20.0, 20.0), 0)
    assert [policy.delay_s(attempts) for attempts in (1, 3, 4)] == [20.0, 20.0, None]


def test_the_four_phases() -> None:
    found = delays(
        numRetries=8,
        numNoDelayRetries=2,
        numMinDelayRetries=1,
        numMaxDelayRetries=2,
        minDelayTarget=1,
        maxDelayTarget=9,
    )
    assert found == [0, 0, 1, 1, 5, 9, 9, 9]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("linear", [1, 6, 11, 16]),
        ("arithmetic", [1, 3.5, 8.5, 16]),
        ("geometric", [1, 2.5, 6.3, 16]),
        ("exponential", [1, 2, 4, 8]),
    ],
)
def test_how_delays_grow(function: str, expected: list[float]) -> None:
    retries = {"numRetries": 4, "minDelayTarget": 1, "maxDelayTarget": 16}
    assert delays(**retries, backoffFunction=function) == expected


@pytest.mark.parametrize(
    "policy",
    [
        [],
        {"sicklyRetryPolicy": {}},
        {"healthyRetryPolicy": {"numRetries": -1}},
        {"healthyRetryPolicy": {"numRetries": 2, "numNoDelayRetries": 3}},
        {"healthyRetryPolicy": {"minDelayTarget": 30}},
        {"healthyRetryPolicy": {"minDelayTarget": 0}},
        {"healthyRetryPolicy": {"backoffFunction": "hyperbolic"}},
        {"healthyRetryPolicy": {"numRetries": 100, "maxDelayTarget": 3_600}},
        {"throttlePolicy": {"maxReceivesPerSecond": 0}},
        {"requestPolicy": {"headerContentType": "a\r\nb: c"}},
    ],
)
def test_policies_that_are_none(policy: object) -> None:
    with pytest.raises(SqsError):
        delivery_policy.read(json.dumps(policy))


def test_addresses() -> None:
    parsed = url.parse("https://Example.com/a/b?c=d")
    assert parsed == ("https", "example.com", 443, "/a/b?c=d")
    local = url.parse("http://[::1]:8080")
    assert local is not None
    assert (local.host_header, local.path) == ("[::1]:8080", "/")
    for text in ("ftp://a/", "http://", "//a", "http://a:0/", "http://a:99999/", "http://é/"):
        assert url.parse(text) is None, text
    for text in ("http://a/b\\c", "http://a@b/", "http://a/./b", "http://a/%2e./b", "http://a/\n"):
        assert url.parse(text) is None, text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://a/hooks", True),
        ("http://a:80/hooks/b", True),
        ("http://a/hooks?b", True),
        ("http://a/hooksb", False),
        ("http://a/", False),
        ("http://a.b/hooks", False),
        ("https://a/hooks", False),
        ("http://a:81/hooks", False),
    ],
)
def test_what_is_allowed(text: str, expected: bool) -> None:
    allowed, found = url.parse("http://a/hooks"), url.parse(text)
    assert allowed is not None
    assert found is not None
    assert url.is_allowed(found, [allowed]) is expected
