"""One durable queue and one topic under both sets of rules, asked for by all protocols."""

import http.client
import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka.admin as admin_api
import pika
import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaError
from pika.exceptions import (
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)

from entrepot.cli import main
from entrepot.testing import Broker
from tests.end_to_end.bare_stomp import BareStomp
from tests.end_to_end.secured import GROUP, WAIT_S, consume, produce

QUEUE, TOPIC = "work", "orders"
MESSAGE = b"a message"
EVERYTHING, NOTHING = (".*", ".*", ".*"), ("", "", "")

# By user: what ACLs allow and deny on both names, and the three expressions; None: no entry.
ENTRIES: dict[str, tuple[str, str, tuple[str, str, str] | None]] = {
    "both": ("READ WRITE", "", EVERYTHING),
    "acls": ("READ WRITE", "", NOTHING),
    "expressions": ("", "", EVERYTHING),
    "denied": ("READ WRITE", "READ WRITE", EVERYTHING),
    "reader": ("READ", "", ("", "", f"^({QUEUE}|{TOPIC})$")),
    "writer": ("WRITE", "", ("", f"^({QUEUE}|{TOPIC}|amq[.]default)$", "")),
    "neither": ("", "", NOTHING),
    "outside": ("READ WRITE", "", None),
}
# By user: who reads and writes as a Kafka client, and who as a client of a virtual host.
MAY = {
    "both": ("read write", "read write"),
    "acls": ("read write", ""),
    "expressions": ("", "read write"),
    "denied": ("", "read write"),
    "reader": ("read", "read"),
    "writer": ("write", "write"),
    "neither": ("", ""),
    "outside": ("read write", ""),
    "root": ("read write", "read write"),
}


def password_of(user: str) -> str:
    return f"{user}'s password"


class House:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def kafka(self, user: str, password: str | None = None) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.broker.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": password or password_of(user),
        }

    def amqp(self, user: str, password: str | None = None) -> pika.BlockingConnection:
        host, port = self.broker.endpoints["amqp"]
        credentials = pika.PlainCredentials(user, password or password_of(user))
        return pika.BlockingConnection(
            pika.ConnectionParameters(host, port, credentials=credentials)
        )

    def http(
        self, user: str, method: str, path: str, body: object = None, password: str | None = None
    ) -> int:
        """The status."""
        host, port = self.broker.endpoints["http"]
        login = f"{user}:{password or password_of(user)}"
        token = b64encode(login.encode()).decode()
        connection = http.client.HTTPConnection(host, port, timeout=WAIT_S)
        try:
            headers = {"Authorization": f"Basic {token}"}
            connection.request(method, f"/api/{path}", json.dumps(body), headers)
            return connection.getresponse().status
        finally:
            connection.close()

    def allow(self, user: str, allowed: str, denied: str) -> None:
        """Also to be in a group, which is no matter of this test."""

        def entry(kind: str, name: str, operation: str, permission: str) -> admin_api.AclBinding:
            return admin_api.AclBinding(
                admin_api.ResourceType[kind],
                name,
                admin_api.ResourcePatternType.LITERAL,
                f"User:{user}",
                "*",
                admin_api.AclOperation[operation],
                admin_api.AclPermissionType[permission],
            )

        entries = [entry("GROUP", GROUP, "READ", "ALLOW")]
        for name in (QUEUE, TOPIC):
            entries += [entry("TOPIC", name, each, "ALLOW") for each in allowed.split()]
            entries += [entry("TOPIC", name, each, "DENY") for each in denied.split()]
        admin = admin_api.AdminClient(self.kafka("root"))
        for future in admin.create_acls(entries).values():
            future.result(WAIT_S)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    data = tmp_path_factory.mktemp("access") / "data"
    added = ["users", "add", "root", "--password-stdin", "--data-dir", str(data)]
    result = CliRunner().invoke(main, added, input="root's password\n")
    assert result.exit_code == 0, result.output
    settings = {
        "security.authentication": "sasl",
        "security.authorization": True,
        "security.super_users": ["User:root"],
        "ports.http": 0,
    }
    with Broker(data, settings=settings) as broker:
        house = House(broker)
        with house.amqp("root") as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare(QUEUE, durable=True)
            channel.queue_declare(TOPIC, durable=True, arguments={"x-queue-type": "stream"})
            for name in (QUEUE, TOPIC):
                channel.basic_publish("", name, MESSAGE)
        for user, (allowed, denied, expressions) in ENTRIES.items():
            body = {"password": password_of(user), "tags": ""}
            assert house.http("root", "PUT", f"users/{user}", body) == 201
            house.allow(user, allowed, denied)
            if expressions is not None:
                fields = dict(zip(("configure", "write", "read"), expressions, strict=True))
                assert house.http("root", "PUT", f"permissions/%2F/{user}", fields) == 201
        yield house


def words(**uses: bool) -> str:
    return " ".join(name for name, is_allowed in uses.items() if is_allowed)


def may_over_kafka(house: House, user: str) -> str:
    """A queue is read like a topic. Nobody writes it by offset, so only the topic is tried."""
    settings = house.kafka(user)
    errors = [consume(settings, MESSAGE, name) for name in (QUEUE, TOPIC)]
    errors.append(produce(settings, b"written", TOPIC))
    codes = [None if error is None else error.code() for error in errors]
    assert set(codes) <= {None, KafkaError.TOPIC_AUTHORIZATION_FAILED}
    assert codes[0] == codes[1]
    return words(read=codes[0] is None, write=codes[2] is None)


def reply_code(house: House, user: str, use: Callable[[Any], object]) -> int:
    """0: it was allowed."""
    try:
        with house.amqp(user) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            use(channel)
    except (ConnectionClosedByBroker, ChannelClosedByBroker) as closed:
        return int(closed.reply_code)
    except ProbableAccessDeniedError as refused:
        return 530 if "refused for user" in str(refused) else -1
    return 0


def may_over_amqp(house: House, user: str) -> str:
    def get(channel: Any) -> None:
        method, _, body = channel.basic_get(QUEUE)
        assert body == MESSAGE
        channel.basic_nack(method.delivery_tag, requeue=True)

    def stream(channel: Any) -> None:
        channel.basic_qos(prefetch_count=1)
        arguments = {"x-stream-offset": "first"}
        for _, _, body in channel.consume(TOPIC, arguments=arguments, inactivity_timeout=WAIT_S):
            assert body == MESSAGE
            break

    def publish(name: str) -> Callable[[Any], object]:
        return lambda channel: channel.basic_publish("", name, MESSAGE, mandatory=True)

    reads = [reply_code(house, user, use) for use in (get, stream)]
    writes = [reply_code(house, user, publish(name)) for name in (QUEUE, TOPIC)]
    assert {*reads, *writes} <= ({530} if user == "outside" else {0, 403})
    assert reads[0] == reads[1]
    assert writes[0] == writes[1]
    return words(read=reads[0] == 0, write=writes[0] == 0)


def may_over_http(house: House, user: str) -> str:
    wanted = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
    read = house.http(user, "POST", f"queues/%2F/{QUEUE}/get", wanted)
    written = []
    for name in (QUEUE, TOPIC):
        message = {
            "properties": {},
            "routing_key": name,
            "payload": MESSAGE.decode(),
            "payload_encoding": "string",
        }
        path = "exchanges/%2F/amq.default/publish"
        written.append(house.http(user, "POST", path, message))
    assert written[0] == written[1]
    assert {read, *written} <= {200, 403}
    return words(read=read == 200, write=written[0] == 200)


def may_over_stomp(house: House, user: str) -> str:
    """Topics cannot be subscribed to, so only the queue is read."""
    answers = []
    for command, destination in (
        ("SUBSCRIBE", f"/queue/{QUEUE}"),
        ("SEND", f"/queue/{QUEUE}"),
        ("SEND", f"/queue/{TOPIC}"),
    ):
        with BareStomp(house.broker) as peer:
            login = {"login": user, "passcode": password_of(user)}
            peer.say("CONNECT", accept_version="1.2", host="/", **login)
            peer.say(command, destination=destination, id=1, ack="client", receipt=1)
            answer = peer.read()
            if answer is not None and answer.command == "CONNECTED":
                answer = peer.read()
            assert answer is not None
            text = answer.headers.get("message", "")
            assert answer.command == "RECEIPT" or "refused for user" in text, answer
            answers.append(answer.command == "RECEIPT")
    read, *writes = answers
    assert writes[0] is writes[1]
    return words(read=read, write=writes[0])


@pytest.mark.slow
@pytest.mark.parametrize("user", MAY)
def test_who_may_do_what(house: House, user: str) -> None:
    over_kafka, in_vhost = MAY[user]
    found = {
        "kafka": may_over_kafka(house, user),
        "amqp": may_over_amqp(house, user),
        "http": may_over_http(house, user),
        "stomp": may_over_stomp(house, user),
    }
    assert found == {"kafka": over_kafka} | dict.fromkeys(("amqp", "http", "stomp"), in_vhost)


@pytest.mark.slow
def test_a_wrong_password_is_one_line_of_the_log_over_each(house: House) -> None:
    error = produce(house.kafka("both", "a guess"), b"x", TOPIC)
    assert error is not None
    with pytest.raises(ProbableAuthenticationError):
        house.amqp("both", "a guess")
    assert house.http("both", "GET", "whoami", password="a guess") == 401
    with BareStomp(house.broker) as peer:
        peer.say("CONNECT", accept_version="1.2", login="both", passcode="a guess")
        assert peer.expect("ERROR").headers["message"].startswith("access refused")
    lines = house.broker.log_path.read_text().splitlines()
    found = [line for line in lines if "login of 'both'" in line]
    mechanisms = {"kafka": "PLAIN", "amqp": "PLAIN", "http": "Basic", "stomp": "PLAIN"}
    for logger, mechanism in mechanisms.items():
        text = f"login of 'both' with {mechanism} failed: wrong user or password"
        assert any(line.endswith(text) and f" {logger}: " in line for line in found), found
    assert not any("a guess" in line for line in lines)
