"""Signatures: an example of Amazon's, botocore as the signer, and what is wrong."""

from datetime import UTC, datetime
from hashlib import sha256

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from entrepot.wire.sqs import signature
from entrepot.wire.sqs.errors import SqsError

SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
# "get-vanilla" of Amazon's test suite for Signature Version 4.
VANILLA = (
    "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
    "SignedHeaders=host;x-amz-date, "
    "Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
)
HEADERS = {"host": "example.amazonaws.com", "x-amz-date": "20150830T123600Z"}
AT_MS = int(datetime(2015, 8, 30, 12, 36, tzinfo=UTC).timestamp() * 1_000)
EMPTY = sha256(b"").hexdigest()


def test_an_example_of_amazon() -> None:
    found = signature.read(VANILLA)
    assert (found.key_id, found.region, found.service) == ("AKIDEXAMPLE", "us-east-1", "service")
    assert signature.is_right(found, SECRET, "GET", "/", HEADERS, EMPTY)
    assert not signature.is_right(found, SECRET + "x", "GET", "/", HEADERS, EMPTY)
    assert not signature.is_right(found, SECRET, "POST", "/", HEADERS, EMPTY)
    assert not signature.is_right(found, SECRET, "GET", "/?a=b", HEADERS, EMPTY)
    assert not signature.is_right(found, SECRET, "GET", "/", HEADERS, sha256(b"x").hexdigest())
    other = {**HEADERS, "host": "example.org"}
    assert not signature.is_right(found, SECRET, "GET", "/", other, EMPTY)


@given(
    path=st.sampled_from(["/", "/000000000000/work", "/000000000000/a%20b.fifo", "/a//b"]),
    query=st.sampled_from(["", "Action=ListQueues&Version=1", "b=2&a=1&a=0", "x=%2F"]),
    body=st.binary(max_size=50),
    value=st.text(alphabet="ab  c", max_size=10),
)
def test_what_botocore_signs_is_right(path: str, query: str, body: bytes, value: str) -> None:
    target = path + (f"?{query}" if query else "")
    request = AWSRequest("POST", f"http://127.0.0.1:9324{target}", {"X-Amz-Note": value}, body)
    SigV4Auth(Credentials("KEY", SECRET), "sqs", "eu-central-1").add_auth(request)
    headers = {name.lower(): text for name, text in request.headers.items()}
    headers["host"] = "127.0.0.1:9324"
    found = signature.read(headers["authorization"])
    digest = sha256(body).hexdigest()
    assert signature.is_right(found, SECRET, "POST", target, headers, digest)
    assert not signature.is_right(found, "other", "POST", target, headers, digest)


@pytest.mark.parametrize(
    ("late_s", "is_fine"), [(899, True), (901, False), (-899, True), (-901, False)]
)
def test_clocks_may_differ_a_little(late_s: int, is_fine: bool) -> None:
    found, now_ms = signature.read(VANILLA), AT_MS + late_s * 1_000
    if is_fine:
        signature.check_time(found, HEADERS, now_ms)
    else:
        with pytest.raises(SqsError, match=r"expired|not yet current") as caught:
            signature.check_time(found, HEADERS, now_ms)
        assert caught.value.code == "SignatureDoesNotMatch"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("SignedHeaders=host;x-amz-date", "SignedHeaders=host"), "IncompleteSignature"),
        (("SignedHeaders=host;x-amz-date", "SignedHeaders=x-amz-date"), "IncompleteSignature"),
        (("Signature=5f", "Signature="), "IncompleteSignature"),
        (("aws4_request", "aws5_request"), "IncompleteSignature"),
        (("AWS4-HMAC-SHA256", "AWS4-HMAC-MD5"), "IncompleteSignature"),
        (("20150830", "20150831"), "SignatureDoesNotMatch"),
    ],
)
def test_what_is_wrong(change: tuple[str, str], code: str) -> None:
    with pytest.raises(SqsError) as caught:
        signature.check_time(signature.read(VANILLA.replace(*change)), HEADERS, AT_MS)
    assert caught.value.code == code


def test_a_time_that_is_none() -> None:
    with pytest.raises(SqsError) as caught:
        signature.check_time(signature.read(VANILLA), {**HEADERS, "x-amz-date": "now"}, AT_MS)
    assert caught.value.code == "IncompleteSignature"
