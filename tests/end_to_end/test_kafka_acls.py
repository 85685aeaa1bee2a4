"""`kafka-acls`, `kafka-configs` for groups, and what is said to whom nobody knows."""

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError

from entrepot.testing import Broker, broker
from tests.end_to_end.secured import ANA, ROOT, House, command, consume, produce
from tests.end_to_end.test_share_groups import commit, consumer, create, poll
from tests.end_to_end.test_share_groups import produce as send

TOPIC = "of-ana"


def acls(house: House, *arguments: str, stdin: str = "", code: int = 0) -> str:
    server = ("--bootstrap-server", house.bootstrap("SASL_SSL"))
    properties = ("--command-config", house.command_config(ROOT))
    return command("kafka-acls", *server, *properties, *arguments, stdin=stdin, code=code)


def test_entries_are_added_listed_and_removed(house: House) -> None:
    """In the words of Kafka's tool; and they count."""
    settings = house.settings(ANA)
    command(
        *("topics", "create", TOPIC, "-b", house.bootstrap("SASL_SSL")),
        *("--command-config", house.command_config(ROOT)),
    )
    refused = produce(settings, b"x", TOPIC)
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    added = acls(house, "--add", "--producer", "--topic", TOPIC, "--allow-principal", "User:ana")
    pattern = f"`ResourcePattern(resourceType=TOPIC, name={TOPIC}, patternType=LITERAL)`"
    entries = [
        f"\t(principal=User:ana, host=*, operation={operation}, permissionType=ALLOW)"
        for operation in ("WRITE", "DESCRIBE", "CREATE")
    ]
    assert added == "\n".join([f"Adding ACLs for resource {pattern}: ", " " + entries[0],
                               *entries[1:], "", ""])  # fmt: skip
    again = acls(house, "--add", "--producer", "--topic", TOPIC, "--allow-principal", "User:ana")
    assert again.count("already exists.") == 3
    assert produce(settings, b"x", TOPIC) is None
    listed = acls(house, "--list", "--topic", TOPIC).splitlines()
    assert listed[0] == f"Current ACLs for resource {pattern}:"
    assert sorted(listed[1:4]) == sorted(entries)
    by_name = acls(house, "--list", "--principal", "User:ana")
    assert by_name.startswith("ACLs for principal `User:ana`\n")
    assert f"name={TOPIC}," in by_name
    acls(house, "--add", "--consumer", "--topic", TOPIC, "--group=g", "--allow-principal=User:ana")
    assert consume(settings, b"x", TOPIC) is None
    acls(house, "--add", "--topic", TOPIC, "--operation", "Read", "--deny-principal", "User:ana")
    denied = consume(settings, b"x", TOPIC)
    assert denied is not None
    acls(house, "--remove", "--topic", TOPIC, stdin="n\n")
    assert acls(house, "--list", "--topic", TOPIC) != ""
    acls(house, "--remove", "--topic", TOPIC, stdin="y\n")
    acls(house, "--remove", "--group", "g", "--force")
    assert acls(house, "--list", "--topic", TOPIC) == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--add", "--list"], "exactly one action"),
        (["--add", "--allow-principal", "User:ana"], "at least one resource"),
        (["--add", "--topic", "t"], "--allow-principal, --deny-principal when trying to add"),
        (["--add", "--topic", "t", "--allow-principal", "ana"], "write it as User:ana"),
        (["--add", "--topic=t", "--allow-principal=User:a", "--operation=Fly"], "one of ALL, READ"),
        (
            ["--add", "--topic=t", "--allow-principal=User:a", "--resource-pattern-type=any"],
            "is not valid when adding acls",
        ),
    ],
)
def test_how_it_is_called(arguments: list[str], said: str) -> None:
    assert said in command("kafka-acls", *arguments, code=2)


@pytest.mark.slow
def test_who_does_not_log_in_is_told_what_is_missing(house: House) -> None:
    said = command("topics", "list", "-b", house.bootstrap("SASL_PLAINTEXT"), code=1)
    assert "closed by peer; it may want a login" in said
    assert len(said.splitlines()) == 1


# --- groups


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker(settings={"ports.http": 0}) as started:
        yield started


def test_share_groups_are_listed_and_have_settings(server: Broker) -> None:
    create(server, "work", "pool")
    reader = consumer(server, "work", "pool")
    send(server, "work", 1)
    assert len(poll(reader, 1)) == 1
    commit(reader)
    at = ("--bootstrap-server", server.bootstrap)
    listed = command("groups", "list", "-b", server.bootstrap).splitlines()
    assert [line.split() for line in listed[1:]] == [["pool", "Stable", "share"]]
    assert command("kafka-consumer-groups", *at, "--list") == ""
    named = ("--entity-type", "groups", "--entity-name", "pool")
    done = command(
        "kafka-configs",
        *at,
        "--alter",
        *named,
        "--add-config",
        "share.record.lock.duration.ms=20000",
    )
    assert done == "Completed updating config for group pool.\n"
    shown = command("kafka-configs", *at, "--describe", *named)
    assert shown.startswith("Dynamic configs for group pool are:\n")
    assert "  share.record.lock.duration.ms=20000 sensitive=false" in shown
    assert "share.auto.offset.reset=earliest" in shown
    assert command("kafka-configs", *at, "--describe", "--group", "pool") == shown
    assert command("kafka-configs", *at, "--describe", "--entity-type", "groups") == shown
    shares(server)
    reader.close()


def shares(server: Broker) -> None:
    """What Kafka's own tool prints, but for the widths of what differs from run to run."""

    def said(*flags: str, code: int = 0) -> str:
        return command(
            "kafka-share-groups", "--bootstrap-server", server.bootstrap, *flags, code=code
        )

    assert said("--list") == "pool\n"
    assert said("--list", "--state") == "GROUP           STATE\npool            Stable\n"
    assert said("--list", "--state", "empty") == "GROUP           STATE\n"
    offsets = said("--describe", "--group", "pool").splitlines()
    assert offsets[1] == "GROUP           TOPIC           PARTITION  START-OFFSET  LAG"
    assert offsets[2] == "pool            work            0          1             0"
    members = said("--describe", "--all-groups", "--members").splitlines()
    assert members[1].split()[-2:] == ["#PARTITIONS", "ASSIGNMENT"]
    assert members[2].split()[-2:] == ["1", "work:0"]
    state = said("--describe", "--group", "pool", "--state", "--verbose").splitlines()
    assert state[1].split()[-4:] == ["STATE", "GROUP-EPOCH", "ASSIGNMENT-EPOCH", "#MEMBERS"]
    assert state[2].split()[-4] == "Stable"
    assert "Share group 'no' does not exist." in said("--describe", "--group", "no", code=1)
    failed = said("--delete", "--group", "pool", "--group", "no", code=1)
    assert "* Group 'no' could not be deleted due to: Group 'no' is not a share group." in failed
    assert "* Group 'pool' could not be deleted due to: " in failed


def test_a_wrong_port_is_named(server: Broker) -> None:
    for name, said in (("http", "it is an HTTP port"), ("amqp", "it is an AMQP port")):
        host, port = server.endpoints[name]
        assert said in command("topics", "list", "-b", f"{host}:{port}", code=1)
