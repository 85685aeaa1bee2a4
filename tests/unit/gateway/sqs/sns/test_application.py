"""Every action of SNS with values of the wrong kind: an answer, and no failure of ours."""

from random import Random
from urllib.parse import urlencode

from entrepot.gateway.sqs.sns.application import ACTIONS
from entrepot.wire.http.request import Request
from entrepot.wire.sqs.sns import VERSION
from tests.unit.gateway.sqs.house import House, in_house

TOPIC = "arn:aws:sns:us-east-1:000000000000:news"
QUEUE = "arn:aws:sqs:us-east-1:000000000000:work"
NAMES = (
    "TopicArn", "TargetArn", "ResourceArn", "SubscriptionArn", "Name", "Protocol", "Endpoint",
    "Message", "Subject", "MessageStructure", "Token", "NextToken", "AttributeName",
    "AttributeValue", "Attributes.entry.1.key", "Attributes.entry.1.value", "Tags.member.1.Key",
    "Tags.member.1.Value", "Tags", "TagKeys.member.1", "TagKeys", "MessageGroupId",
    "PublishBatchRequestEntries.member.1.Id", "PublishBatchRequestEntries.member.1.Message",
    "PublishBatchRequestEntries.member.1", "MessageAttributes.entry.1.Name", "MessageAttributes",
    "MessageAttributes.entry.1.Value.DataType", "MessageAttributes.entry.1.Value.StringValue",
)  # fmt: skip
VALUES = (
    "", "x", TOPIC, QUEUE, f"{TOPIC}:x", "news", "sqs", "json", "é\0", "1", "{}", '{"a": ["b"]}',
    "FilterPolicy", "RawMessageDelivery", "FifoTopic", "DisplayName", "true", "Number", "String",
    "Binary", ":" * 20, "[" * 500, '{"default": 1}', '{"default": "x", "sqs": []}', "9" * 400,
)  # fmt: skip


async def ask(house: House, action: str, **fields: str) -> int:
    body = urlencode({"Action": action, "Version": VERSION, **fields}).encode()
    request = Request("POST", "/", {"host": "localhost"}, body)
    return (await house.handle(request, "127.0.0.1")).status


@in_house
async def test_anything_is_answered(house: House) -> None:
    random = Random(5)
    await house.queue("work")
    assert await ask(house, "CreateTopic", Name="news") == 200
    subscribe = {"TopicArn": TOPIC, "Protocol": "sqs", "Endpoint": QUEUE}
    assert await ask(house, "Subscribe", **subscribe) == 200
    statuses = set()
    for _ in range(400):
        given = {name: random.choice(VALUES) for name in random.sample(NAMES, 6)}
        if random.random() < 0.7:
            given["TopicArn"] = given["ResourceArn"] = TOPIC
        action = random.choice([each for each in ACTIONS if each != "DeleteTopic"] + ["None"])
        statuses.add(await ask(house, action, **given))
    assert {200, 400} <= statuses <= {200, 400, 404}
    assert await ask(house, "Publish", TopicArn=TOPIC, Message="x") == 200
