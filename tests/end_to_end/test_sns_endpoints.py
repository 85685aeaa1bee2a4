"""SNS to HTTP endpoints: confirmation, retries, dead letters, and where nothing is sent to."""

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pika
import pytest

from entrepot.testing import Broker, broker
from tests.end_to_end.sqs import arn, bodies, connect, refusal
from tests.end_to_end.test_sns import connect_sns, new_topic

WAIT_S = 30
AT_ONCE = {"healthyRetryPolicy": {"numRetries": 3, "numNoDelayRetries": 3}}
TEXT = {"DataType": "String", "StringValue": "x"}


class Hook:
    """An endpoint: what it got, and the statuses that it answers with, one after the other."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self._server = server
        self.got: list[tuple[dict[str, str], str]] = []
        self.statuses: list[int] = []
        self.came = threading.Condition()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def url(self, path: str = "/hooks/a") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def wait(self, number: int) -> tuple[dict[str, str], str]:
        """Return the message with that number, when it has come."""
        with self.came:
            assert self.came.wait_for(lambda: len(self.got) > number, WAIT_S), self.got
            return self.got[number]


@contextmanager
def hook(port: int = 0) -> Iterator[Hook]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode("utf-8", "replace")
            with made.came:
                made.got.append(({k.lower(): v for k, v in self.headers.items()}, body))
                status = made.statuses.pop(0) if made.statuses else 200
                made.came.notify_all()
            self.send_response(status)
            self.send_header("Location", made.url("/elsewhere"))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    made = Hook(server)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[Broker, Hook]]:
    with hook() as made:
        settings = {"ports.sqs": 0, "sns.endpoints": [made.url("/hooks")]}
        with broker(settings=settings) as started:
            yield started, made
            assert "Traceback" not in started.log_path.read_text()


@pytest.fixture
def server(shared: tuple[Broker, Hook]) -> Broker:
    return shared[0]


@pytest.fixture
def endpoint(shared: tuple[Broker, Hook]) -> Hook:
    shared[1].got.clear()
    shared[1].statuses.clear()
    return shared[1]


def subscribed(sns: Any, topic: str, endpoint: Hook, **attributes: Any) -> str:
    """Subscribe and confirm as a program does; return the ARN."""
    number = len(endpoint.got)
    said = sns.subscribe(
        TopicArn=topic,
        Protocol="http",
        Endpoint=endpoint.url(),
        Attributes={
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in attributes.items()
        },
    )
    assert said["SubscriptionArn"] == "pending confirmation"
    token = json.loads(endpoint.wait(number)[1])["Token"]
    return str(sns.confirm_subscription(TopicArn=topic, Token=token)["SubscriptionArn"])


def test_an_endpoint_confirms_and_gets_messages(server: Broker, endpoint: Hook) -> None:
    sns = connect_sns(server)
    topic = new_topic(sns)
    asked = {"TopicArn": topic, "Protocol": "http", "Endpoint": endpoint.url("/hooks/b?c=d")}
    assert sns.subscribe(**asked)["SubscriptionArn"] == "pending confirmation"
    headers, body = endpoint.wait(0)
    question = json.loads(body)
    assert headers["x-amz-sns-message-type"] == question["Type"] == "SubscriptionConfirmation"
    assert (question["TopicArn"], headers["content-type"]) == (topic, "text/plain; charset=UTF-8")
    sns.publish(TopicArn=topic, Message="before")  # It is not confirmed, so it does not come.
    (row,) = sns.list_subscriptions_by_topic(TopicArn=topic)["Subscriptions"]
    assert (row["SubscriptionArn"], row["Endpoint"]) == ("PendingConfirmation", asked["Endpoint"])
    wrong = {"TopicArn": topic, "Token": "0" * 64}
    assert refusal(sns.confirm_subscription, **wrong) == ("InvalidParameter", 400)
    assert sns.subscribe(**asked)["SubscriptionArn"] == "pending confirmation"
    assert json.loads(endpoint.wait(1)[1])["Token"] == question["Token"]
    with urllib.request.urlopen(question["SubscribeURL"], timeout=WAIT_S) as answer:  # By hand.
        assert b"<SubscriptionArn>arn:aws:sns" in answer.read()
    told = sns.get_topic_attributes(TopicArn=topic)["Attributes"]
    assert (told["SubscriptionsConfirmed"], told["SubscriptionsPending"]) == ("1", "0")
    sent = sns.publish(
        TopicArn=topic, Message="héllo", Subject="Greeting", MessageAttributes={"kind": TEXT}
    )
    headers, body = endpoint.wait(2)
    notice = json.loads(body)
    assert headers["x-amz-sns-message-type"] == notice["Type"] == "Notification"
    assert headers["x-amz-sns-message-id"] == notice["MessageId"] == sent["MessageId"]
    assert (notice["Message"], notice["Subject"]) == ("héllo", "Greeting")
    assert notice["MessageAttributes"] == {"kind": {"Type": "String", "Value": "x"}}
    mine = sns.subscribe(**asked)["SubscriptionArn"]  # Again: it is there.
    assert headers["x-amz-sns-subscription-arn"] == mine
    with urllib.request.urlopen(notice["UnsubscribeURL"], timeout=WAIT_S):
        pass
    assert sns.list_subscriptions_by_topic(TopicArn=topic)["Subscriptions"] == []


def test_raw_filtered_and_a_text_of_its_own(server: Broker, endpoint: Hook) -> None:
    sns = connect_sns(server)
    topic = new_topic(sns)
    policy = {"requestPolicy": {"headerContentType": "application/json"}}
    mine = subscribed(
        sns,
        topic,
        endpoint,
        RawMessageDelivery="true",
        FilterPolicy={"kind": ["x"]},
        DeliveryPolicy=policy,
    )
    sns.publish(TopicArn=topic, Message="unwanted")
    text = json.dumps({"default": "d", "http": '{"a": 1}', "sqs": "s"})
    sns.publish(
        TopicArn=topic, Message=text, MessageStructure="json", MessageAttributes={"kind": TEXT}
    )
    headers, body = endpoint.wait(1)
    assert (body, headers["x-amz-sns-rawdelivery"]) == ('{"a": 1}', "true")
    assert headers["content-type"] == "application/json"
    told = sns.get_subscription_attributes(SubscriptionArn=mine)["Attributes"]
    effective = json.loads(told["EffectiveDeliveryPolicy"])
    assert effective["healthyRetryPolicy"]["numRetries"] == 3
    assert (told["Protocol"], told["PendingConfirmation"]) == ("http", "false")


def test_it_is_tried_again_and_then_a_dead_letter(server: Broker, endpoint: Hook) -> None:
    sns, sqs = connect_sns(server), connect(server)
    topic = new_topic(sns)
    url = sqs.create_queue(QueueName="dead-hooks")["QueueUrl"]
    dead = {"deadLetterTargetArn": arn("dead-hooks")}
    subscribed(
        sns,
        topic,
        endpoint,
        RawMessageDelivery="true",
        DeliveryPolicy=AT_ONCE,
        RedrivePolicy=dead,
    )
    endpoint.statuses[:] = [503, 429, 500]
    sns.publish(TopicArn=topic, Message="at last")  # It comes with the fourth attempt.
    assert [endpoint.wait(number)[1] for number in range(1, 5)] == ["at last"] * 4
    endpoint.statuses[:] = [500] * 4
    sns.publish(TopicArn=topic, Message="never")
    answer = sqs.receive_message(
        QueueUrl=url, WaitTimeSeconds=20, MessageAttributeNames=["All"], VisibilityTimeout=0
    )
    assert bodies(answer) == ["never"]
    assert len(endpoint.got) == 9
    told = answer["Messages"][0]["MessageAttributes"]
    assert told["x-amz-sns-topic-arn"]["StringValue"] == topic
    sqs.purge_queue(QueueUrl=url)
    for status in (404, 302):  # Repeating is useless; where a redirection leads is not asked.
        endpoint.statuses[:] = [status]
        sns.publish(TopicArn=topic, Message=f"{status}")
        answer = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20)
        assert bodies(answer) == [f"{status}"]
    assert len(endpoint.got) == 11


def test_addresses_that_are_not_allowed(server: Broker, endpoint: Hook) -> None:
    sns = connect_sns(server)
    topic, fifo = new_topic(sns), new_topic(sns, ".fifo", FifoTopic="true")
    good = endpoint.url()
    wrong = ("InvalidParameter", 400)
    for named, address in (
        ("http", endpoint.url("/other")),
        ("http", endpoint.url("/hooksa")),
        ("http", endpoint.url("/hooks/../other")),
        ("http", endpoint.url("/hooks/%2E%2e/other")),
        ("http", endpoint.url("/hooks/a b")),
        ("http", endpoint.url("/hooks/a\r\nHost: b")),
        ("http", good.replace("127.0.0.1", "127.0.0.1@localhost")),
        ("http", good.replace("127.0.0.1", "localhost")),
        ("http", "http://169.254.169.254/hooks"),
        ("http", "http://[::1]/hooks"),
        ("http", "http://127.0.0.1:x/hooks"),
        ("https", good),
        ("https", good.replace("http", "https")),
        ("email", "a@example.com"),
    ):
        given = {"TopicArn": topic, "Protocol": named, "Endpoint": address}
        assert refusal(sns.subscribe, **given) == wrong, address
    given = {"TopicArn": fifo, "Protocol": "http", "Endpoint": good}
    assert refusal(sns.subscribe, **given) == wrong
    for attributes in (
        {"RedrivePolicy": "{}"},
        {"RedrivePolicy": json.dumps({"deadLetterTargetArn": arn("none")})},
        {"DeliveryPolicy": "[]"},
        {"DeliveryPolicy": '{"healthyRetryPolicy": {"numRetries": 101}}'},
        {"DeliveryPolicy": '{"healthyRetryPolicy": {"maxDelayTarget": 3601}}'},
        {"DeliveryPolicy": '{"requestPolicy": {"headerContentType": "a\\r\\nb: c"}}'},
    ):
        given = {"TopicArn": topic, "Protocol": "http", "Endpoint": good, "Attributes": attributes}
        assert refusal(sns.subscribe, **given) == wrong, attributes
    assert endpoint.got == []


def test_headers_are_ours(server: Broker, endpoint: Hook) -> None:
    """Who publishes to the queue of an endpoint cannot write headers into the request."""
    sns = connect_sns(server)
    subscribed(sns, new_topic(sns), endpoint)
    with pika.BlockingConnection(pika.URLParameters(server.amqp_url)) as connection:
        channel = connection.channel()
        name = [
            each["SubscriptionArn"].rpartition(":")[2]
            for each in sns.list_subscriptions()["Subscriptions"]
            if each["Endpoint"] == endpoint.url()
        ][-1]
        bad = {"x-amz-sns-message-id": "a\r\nX-Evil: b", "X-Evil": "c", "x-amz-sns-evil": "d"}
        properties = pika.BasicProperties(headers=bad)
        channel.basic_publish("", f"sns.{name}", b"\xff\0", properties)
        headers, _ = endpoint.wait(1)
        assert "evil" not in str(headers).lower()


@pytest.mark.usefixtures("every_durability")
def test_what_waits_survives_kill_9(tmp_path: Path) -> None:
    with hook() as first:
        port = first.port
        settings = {"ports.sqs": 0, "sns.endpoints": [first.url("/")]}
        with broker(tmp_path / "data", settings=settings) as server:
            sns, sqs = connect_sns(server), connect(server)
            topic = new_topic(sns)
            subscribed(sns, topic, first, RawMessageDelivery="true")
            sqs.create_queue(QueueName="gone")
            sqs.create_queue(QueueName="letters")
            policy = json.dumps({"deadLetterTargetArn": arn("letters")})
            attributes = {"RawMessageDelivery": "true", "RedrivePolicy": policy}
            given = {"TopicArn": topic, "Protocol": "sqs", "Endpoint": arn("gone")}
            sns.subscribe(**given, Attributes=attributes)
            sqs.delete_queue(QueueUrl=sqs.get_queue_url(QueueName="gone")["QueueUrl"])
            first.statuses[:] = [503] * 100
            for number in range(10):
                sns.publish(TopicArn=topic, Message=f"{number}")
            server.kill()
            first.statuses.clear()
            first.got.clear()
            server.start()
            assert first.port == port
            deadline = time.monotonic() + WAIT_S
            while {body for _, body in first.got} < {f"{n}" for n in range(10)}:
                assert time.monotonic() < deadline, first.got
                time.sleep(0.05)
            sqs = connect(server)
            url = sqs.get_queue_url(QueueName="letters")["QueueUrl"]
            found = bodies(sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10))
            assert found == [f"{number}" for number in range(10)]


def test_a_token_is_enough_where_users_log_in(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from entrepot.cli import main

    data_dir = str(tmp_path / "data")
    add = ["users", "add", "ana", "--data-dir", data_dir, "--password-stdin"]
    assert CliRunner().invoke(main, add, input="ana's password\n").exit_code == 0
    made = ["users", "add-key", "ana", "--data-dir", data_dir, "--json"]
    key = json.loads(CliRunner().invoke(main, made).output)
    with hook() as endpoint:
        settings = {
            "ports.sqs": 0,
            "sns.endpoints": [endpoint.url("/")],
            "security.authentication": "sasl",
        }
        with broker(data_dir, settings=settings) as server:
            sns = connect_sns(server, key["id"], key["secret"])
            topic = new_topic(sns)
            sns.subscribe(TopicArn=topic, Protocol="http", Endpoint=endpoint.url())
            url = json.loads(endpoint.wait(0)[1])["SubscribeURL"]
            with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
                assert answer.status == 200
            sns.publish(TopicArn=topic, Message="x")
            notice = json.loads(endpoint.wait(1)[1])
            with pytest.raises(urllib.error.HTTPError, match="403"):
                urllib.request.urlopen(notice["UnsubscribeURL"], timeout=WAIT_S)
