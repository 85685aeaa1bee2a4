"""SQS's side: every action, as JSON and as a form, with values that are right and that are not."""

import json
import re
from random import Random
from typing import Any
from urllib.parse import quote
from zlib import crc32

from entrepot.gateway.sqs.application import ACTIONS, TARGET
from tests.fuzz.damage import damaged
from tests.fuzz.session import Damaged

_QUEUES = ("one", "two", "three", "dead", "slow")
_ODD_QUEUES = ("none", "q.fifo", "", "a b", "é", "x" * 81, "x" * 300, "amq.x", "a/b", "%00")
_LAST = b"GET /?Action=ListQueues HTTP/1.0\r\n\r\n"  # After which there is no other.

# What stands for the last receipt of a queue that was heard. Numbers in it may begin with zeros,
# so that all receipts have one length.
_RECEIPT = re.compile(
    rb"([0-9a-f]{8})-([0-9a-f]{11})-([0-9a-f]{1,8})-([0-9a-f]{1,8})-([0-9a-f]{1,8})"
)
_TIME = b"f" * 11


def _receipt(queue: str) -> str:
    return f"{crc32(f'//{queue}'.encode()):08x}-{_TIME.decode()}" + "-00000000" * 3


def learn(data: bytes) -> dict[bytes, bytes]:
    """Return the last receipts in an answer, for what stands for them."""
    found = {}
    for name, opening, *numbers in _RECEIPT.findall(data):
        place = name + b"-" + _TIME + b"-00000000" * 3
        found[place] = b"-".join((name, opening, *(each.zfill(8) for each in numbers)))
    return found


_ODD: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 2**31, 2**63, 10**30, "", "x", "1", "-1", "é", "a\0b", "\ud800",
    "x" * 300, [], {}, [[]], [{}], [None], ["All"], {"a": 1}, {"": ""}, {"a": {}},
)  # fmt: skip
_ATTRIBUTES = {
    "VisibilityTimeout": ("0", "1", "30", "43200", "43201", "-1", "x", "9" * 30),
    "DelaySeconds": ("0", "0", "1", "900", "901"),
    "MessageRetentionPeriod": ("60", "345600", "59", "1209601"),
    "MaximumMessageSize": ("1024", "262144", "1", "1048577"),
    "ReceiveMessageWaitTimeSeconds": ("0", "0", "1", "21"),
    "RedrivePolicy": (
        '{"deadLetterTargetArn":"arn:aws:sqs:x:000000000000:dead","maxReceiveCount":2}',
        '{"deadLetterTargetArn":"arn:aws:sqs:x:000000000000:one","maxReceiveCount":"1"}',
        '{"deadLetterTargetArn":"arn:aws:sqs:::","maxReceiveCount":0}',
        "[1]", "{", "",
    ),
    "Policy": ("", "x"),
    "FifoQueue": ("false", "true"),
    "None": ("x",),
}  # fmt: skip
_NAMES = ("All", "QueueArn", "ApproximateNumberOfMessages", "RedrivePolicy", "None", "")
_SYSTEM_NAMES = ("All", "SentTimestamp", "ApproximateReceiveCount", "SenderId", "None", "")
_MESSAGE_ATTRIBUTES: dict[str, tuple[Any, ...]] = {
    "n": ({"DataType": "Number", "StringValue": "1.0"}, {"DataType": "Number", "StringValue": "x"}),
    "s": ({"DataType": "String.x", "StringValue": "é"}, {"DataType": "String", "StringValue": ""}),
    "b": (
        {"DataType": "Binary", "BinaryValue": "AAH/"},
        {"DataType": "Binary", "BinaryValue": "%"},
    ),
    "aws.x": ({"DataType": "String", "StringValue": "x"}, {"DataType": 1}),
    "..": ({"DataType": "String", "StringValue": "\0"}, {}),
}
_BODIES = ("x", "hello é", "<&>\r\n", "y" * 2_000, "z" * 250_000)
_ODD_BODIES = ("", "\0", "\ufffe", "\ud800", "z" * 300_000)


def speak(random: Random) -> list[bytes]:
    frames = [request(random) for _ in range(random.choice((2, 5, 10, 15)))]
    if random.random() < 0.5:
        frames.append(damaged(random, frames.pop()))
    return [*frames, _LAST]


def request(random: Random) -> bytes:
    is_odd = random.random() < 0.3
    action = random.choice(_USUAL if random.random() < 0.7 else _ALL)
    queue = random.choice(_ODD_QUEUES if is_odd and random.random() < 0.3 else _QUEUES)
    given = parameters(random, action, queue, is_odd=is_odd)
    if is_odd and random.random() < 0.5 and given:
        given[random.choice(list(given))] = random.choice(_ODD)
    if is_odd and random.random() < 0.2 and given:
        del given[random.choice(list(given))]
    made = _json(random, action, given) if random.random() < 0.6 else _form(random, action, given)
    return Damaged(made) if is_odd else made


_USUAL = (
    "CreateQueue", "SendMessage", "SendMessage", "SendMessageBatch", "ReceiveMessage",
    "ReceiveMessage", "ReceiveMessage", "DeleteMessage", "DeleteMessageBatch",
    "ChangeMessageVisibility", "ChangeMessageVisibilityBatch",
)  # fmt: skip
_ALL = (*ACTIONS, "None", "")


def parameters(random: Random, action: str, queue: str, *, is_odd: bool) -> dict[str, Any]:
    """What the action wants to hear."""
    given: dict[str, Any] = {"QueueUrl": f"http://localhost/000000000000/{quote(queue, safe='')}"}
    match action:
        case "CreateQueue" | "GetQueueUrl":
            given = {"QueueName": queue}
            if action == "CreateQueue" and random.random() < 0.3:
                given["Attributes"] = _attributes(random, is_odd)
                given["tags"] = {"a": "b"}
        case "SetQueueAttributes":
            given["Attributes"] = _attributes(random, is_odd)
        case "GetQueueAttributes":
            given["AttributeNames"] = random.sample(_NAMES if is_odd else _NAMES[:4], 2)
        case "ListQueues" | "ListDeadLetterSourceQueues":
            given |= {"MaxResults": random.choice((1, 2, 1000))}
            if is_odd:
                given |= {"NextToken": random.choice(("", "x", "eyJ9")), "QueueNamePrefix": "o"}
        case "TagQueue":
            given["Tags"] = {f"k{number}": "v" for number in range(random.choice((1, 3, 60)))}
        case "UntagQueue":
            given["TagKeys"] = ["k0", "none"]
        case "SendMessage":
            given |= _message(random, is_odd)
        case "ReceiveMessage":
            given |= {
                "MaxNumberOfMessages": random.choice((1, 2, 10)),
                "WaitTimeSeconds": 0,
                "VisibilityTimeout": random.choice((0, 1, 30)),
                "MessageSystemAttributeNames": random.sample(
                    _SYSTEM_NAMES if is_odd else _SYSTEM_NAMES[:4], 2
                ),
                "MessageAttributeNames": ["All"],
            }
        case "DeleteMessage" | "ChangeMessageVisibility":
            given |= _settlement(random, queue, is_odd)
        case "SendMessageBatch":
            given["Entries"] = _entries(random, lambda: _message(random, is_odd))
        case "DeleteMessageBatch" | "ChangeMessageVisibilityBatch":
            given["Entries"] = _entries(random, lambda: _settlement(random, queue, is_odd))
    return given


def _attributes(random: Random, is_odd: bool) -> dict[str, str]:
    names = random.sample(list(_ATTRIBUTES) if is_odd else list(_ATTRIBUTES)[:6], 2)
    return {
        name: random.choice(_ATTRIBUTES[name] if is_odd else _ATTRIBUTES[name][:2])
        for name in names
    }


def _message(random: Random, is_odd: bool) -> dict[str, Any]:
    given: dict[str, Any] = {"MessageBody": random.choice(_ODD_BODIES if is_odd else _BODIES)}
    if random.random() < 0.3:
        given["DelaySeconds"] = random.choice((0, 1, 900, 901) if is_odd else (0, 1))
    if random.random() < 0.4:
        names = random.sample(list(_MESSAGE_ATTRIBUTES)[: 5 if is_odd else 3], 2)
        given["MessageAttributes"] = {
            name: random.choice(_MESSAGE_ATTRIBUTES[name][: 2 if is_odd else 1]) for name in names
        }
    if random.random() < 0.1:
        trace = {"DataType": "String", "StringValue": "Root=1-5759e988-bd862e3fe1be46a994272793"}
        given["MessageSystemAttributes"] = {"AWSTraceHeader": trace}
        given["MessageGroupId"] = "g"
    return given


def _settlement(random: Random, queue: str, is_odd: bool) -> dict[str, Any]:
    handle = _receipt(queue)
    if is_odd:
        handle = random.choice((handle, "1-2-3-4-5", "", handle + "0", handle[:-1] + "g", "-" * 40))
    return {"ReceiptHandle": handle, "VisibilityTimeout": random.choice((0, 1, 30))}


def _entries(random: Random, made: Any) -> list[dict[str, Any]]:
    count = random.choice((1, 2, 10, 10, 11))
    return [{"Id": f"m{number % 10}", **made()} for number in range(count)]


# --- the two protocols


def _json(random: Random, action: str, given: dict[str, Any]) -> bytes:
    body = json.dumps(given, ensure_ascii=random.random() < 0.9).encode(errors="surrogatepass")
    if random.random() < 0.05:
        body = damaged(random, body)
    if random.random() < 0.005:
        depth = random.choice((30, 100, 2_000, 20_000))
        body = b'{"Entries":' + b"[" * depth + b"1" + b"]" * depth + b"}"
    return _encoded(random, "/", body, f"X-Amz-Target: {TARGET}{action}")


def _form(random: Random, action: str, given: dict[str, Any]) -> bytes:
    fields = {"Action": action, "Version": "2012-11-05"}
    path = "/"
    for name, value in given.items():
        if name == "QueueUrl" and random.random() < 0.5 and isinstance(value, str):
            path = value.removeprefix("http://localhost") or "/"
            continue
        fields |= _flat(action, name, value)
    body = "&".join(f"{name}={_quoted(value)}" for name, value in fields.items()).encode()
    if random.random() < 0.05:
        body = damaged(random, body)
    return _encoded(random, path, body, "Content-Type: application/x-www-form-urlencoded")


def _quoted(value: Any) -> str:
    return quote(str(value).encode(errors="surrogatepass"))


_MAPS = {
    "Attributes": ("Attribute", "Name"),
    "MessageAttributes": ("MessageAttribute", "Name"),
    "MessageSystemAttributes": ("MessageSystemAttribute", "Name"),
    "Tags": ("Tag", "Key"),
    "tags": ("Tag", "Key"),
}


def _flat(action: str, name: str, value: Any) -> dict[str, Any]:
    """Return a parameter as fields of a form."""
    if isinstance(value, dict) and name in _MAPS:
        form, key = _MAPS[name]
        found: dict[str, Any] = {}
        for number, (each, what) in enumerate(value.items(), 1):
            found[f"{form}.{number}.{key}"] = each
            found |= _flat(action, f"{form}.{number}.Value", what)
        return found
    if isinstance(value, dict):
        found = {}
        for each, what in value.items():
            found |= {f"{name}.{end}": x for end, x in _flat(action, each, what).items()}
        return found
    if isinstance(value, list):
        form = f"{action}RequestEntry" if name == "Entries" else name.removesuffix("s")
        found = {}
        for number, each in enumerate(value, 1):
            found |= _flat(action, f"{form}.{number}", each)
        return found
    return {name: value}


def _encoded(random: Random, path: str, body: bytes, header: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", header]
    if random.random() < 0.3:
        lines.append(
            "Authorization: AWS4-HMAC-SHA256 Credential="
            + random.choice(("any/20260101/eu-central-1/sqs/aws4_request", "any", "///", "é"))
            + ", SignedHeaders=host, Signature=0"
        )
    if random.random() < 0.03:
        lines.append(
            random.choice(("Connection: close", "Expect: 100-continue", "X: " + "y" * 9_000))
        )
    lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join((*lines, "", "")).encode(errors="surrogatepass") + body
