"""Connected with a password, under TLS, or not at all."""

from pathlib import Path

import pytest

from entrepot.client.admin import Admin, NewTopic
from entrepot.client.errors import ClientError, Refused
from entrepot.spark.connecting import Connected
from entrepot.spark.options import Address, OptionError, read_source
from entrepot.testing import Broker
from tests.end_to_end.secured import ROOT, opened


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_broker_that_asks_who_we_are(tmp_path: Path, protocol: str) -> None:
    with opened(tmp_path) as house:
        said = {f"kafka.{name}": value for name, value in house.settings(ROOT, protocol).items()}
        address = read_source({**said, "subscribe": "t"}, is_stream=False).address
        with Connected(address) as connected:
            connected.check()
            new = connected.run(lambda client: Admin(client).create_topics([NewTopic("t", 2)]))
            assert new == {"t": None}
        said["kafka.sasl.password"] = "wrong"
        address = read_source({**said, "subscribe": "t"}, is_stream=False).address
        with Connected(address) as connected, pytest.raises(ClientError, match="wrong user or"):
            connected.check()


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"security.protocol": "SASL_SSL", "sasl.username": "ana"}, "kafka.sasl.password is"),
        ({"security.protocol": "TLS"}, "kafka.security.protocol is one of PLAINTEXT"),
        ({"security.protocol": "SSL", "ssl.ca.location": "nowhere.pem"}, "kafka.ssl: "),
    ],
)
def test_what_is_wrong_names_the_option(properties: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        Connected(Address("localhost:9092", tuple(properties.items())))


def test_an_answer_may_come_later(server: Broker) -> None:
    with Connected(Address(server.bootstrap)) as connected:
        underway = connected.start(lambda client: client.cluster.describe([]))
        assert connected.run(lambda client: client.cluster.describe([])) == []
        assert connected.finish(underway) == []
        failing = connected.start(lambda client: client.topic("no-such-topic"))
        with pytest.raises(Refused, match="UNKNOWN_TOPIC_OR_PARTITION"):
            connected.finish(failing)
        connected.start(lambda client: client.cluster.describe([]))  # Nobody waits for it.
