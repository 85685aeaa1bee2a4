"""The command line. One module per command, imported when it is called.

A broker is started and a topic is listed by people and by scripts; both count the
milliseconds before the first line. So this module knows the commands by name only,
and a command imports the server, the client or rich when it needs them.

Mistakes give one line on stderr: exit code 2 for how it was called, 1 for what
went wrong then. Ctrl-C gives none, and 130.
"""

import signal
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click

# Name, module and one line of help. The lectures' names come last, as in the bin/
# of Kafka and RabbitMQ.
COMMANDS = {
    "serve": ("serve", "Start a broker."),
    "cluster": ("cluster", "Start a cluster here, show who does what in one."),
    "topics": ("topics", "Create, list, describe, alter and delete topics."),
    "produce": ("produce", "Send lines of text as records."),
    "consume": ("consume", "Print records."),
    "groups": ("groups", "List, describe, reset and delete consumer groups."),
    "transactions": ("transactions", "List, describe and abort transactions."),
    "queues": ("queues", "Declare, list, peek into, purge, rewind, move queues."),
    "exchanges": ("routing", "List, declare and delete exchanges."),
    "bind": ("routing", "Send what an exchange gets on to a queue or topic."),
    "unbind": ("routing", "Undo that."),
    "bindings": ("routing", "List what is bound."),
    "pub": ("pub", "Publish on a topic of MQTT."),
    "sub": ("sub", "Print what is published on topics of MQTT."),
    "sessions": ("sessions", "List, show and delete sessions of MQTT's clients."),
    "retained": ("sessions", "List and clear retained messages."),
    "link": ("links", "Add, remove and list links to other brokers."),
    "links": ("links", "List the links to other queue managers."),
    "routes": ("links", "Show which queue manager is reached by way of which."),
    "users": ("users", "Add, list and delete users, set passwords."),
    "connect": ("connect", "Move data between topics and files, databases, HTTP."),
    "transform": ("transform", "Formats, and rules between them."),
    "pipeline": ("pipeline", "Run pipelines on Spark."),
    "status": ("status", "Show what runs here, and what cannot be used."),
    "top": ("top", "Show what happens in a broker now."),
    "doctor": ("doctor", "Look for what a broker would suffer from here."),
    "gossip": ("gossip", "Labs of gossip, and a node that gossips."),
    "multicast": ("multicast", "Labs of multicast; groups of IP multicast."),
    "routing": ("event_routing", "Routing of events over nodes: labs, and nodes."),
    "spaces": ("spaces", "Labs of tuple spaces, memory and groups."),
    "prove": ("prove", "Every delivery semantics, while all are killed."),
    "log": ("log", "Look into a data directory: verify it, dump it."),
    "kafka-server-start": ("kafka_server", "Start a broker from a server.properties."),
    "kafka-server-stop": ("kafka_server", "Stop it."),
    "kafka-topics": ("kafka_topics", "topics, with the flags of Kafka's tool."),
    "kafka-console-producer": ("kafka_console_producer", "produce, with those flags."),
    "kafka-console-consumer": ("kafka_console_consumer", "consume, with those flags."),
    "kafka-consumer-groups": ("kafka_consumer_groups", "groups, with those flags."),
    "kafka-share-groups": ("kafka_share_groups", "Share groups, with the flags of Kafka's tool."),
    "kafka-transactions": ("kafka_transactions", "transactions, with those commands."),
    "kafka-configs": ("kafka_configs", "Settings of topics and brokers, quotas, passwords."),
    "kafka-acls": ("kafka_acls", "Who may do what, with the flags of Kafka's tool."),
    "zookeeper-server-start": ("zookeeper", "Says what replaces it."),
    "zookeeper-server-stop": ("zookeeper", "Says what replaces it."),
    "zkserver": ("zookeeper", "Says what replaces ZooKeeper's own script."),
    "rabbitmq-server": ("rabbitmq_server", "serve, under RabbitMQ's name."),
    "rabbitmqctl": ("rabbitmqctl", "Queues, virtual hosts, users, as RabbitMQ's tool."),
}


class _LazyGroup(click.Group):
    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = import_module(f"entrepot.cli.{COMMANDS[name][0]}")
        command = getattr(module, name.replace("-", "_"))
        assert isinstance(command, click.Command)
        return command

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except KeyboardInterrupt:  # While a command is imported, or in one that has no more to say.
            context.exit(128 + signal.SIGINT)

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not context.resilient_parsing:
            near = get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            context.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(context, args)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Help without importing a thing."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="entrepot")
def main() -> None:
    """One durable log for clients of Kafka, AMQP, MQTT, STOMP and SQS.

    `entrepot serve` starts a broker here; every other command talks to one, or reads
    its files. `entrepot COMMAND --help` says more.
    """
