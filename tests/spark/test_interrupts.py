"""Ctrl-C at any moment: the code says so, nothing else is said, and no process is left behind.

Processes are found by a word in their environment, which those that they start inherit.
"""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pip install 'entrepot[spark]' for this test")
pytest.importorskip("deltalake", reason="pip install 'entrepot[spark]' for this test")

from entrepot.testing import Broker
from tests.spark.producing import create, produce, texts

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are in /proc"),
]

GONE_S_MAX = 30.0  # For Python workers, which end when they see that Java has.
IMPORTED = "import 'entrepot.wire.kafka'"  # In the middle of what a command imports.
SHOP = """
from entrepot.spark.pipelines import Delta, Topic, pipeline

@pipeline(reads=Topic("t"), writes=Delta("copies"))
def copies(records):
    return records.select("offset")
"""
Start = Callable[..., "subprocess.Popen[str]"]


def left(word: str) -> list[str]:
    """What still runs with the word in its environment."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if word.encode() in (place / "environ").read_bytes():
                found.append((place / "cmdline").read_text().replace("\0", " ")[:200])
        except OSError:  # Gone meanwhile, or somebody else's.
            continue
    return found


@pytest.fixture
def word() -> str:
    return f"INTERRUPTED_TEST={secrets.token_hex(8)}"


@pytest.fixture
def start(word: str) -> Iterator[Start]:
    """Start a module of Python, with the word in its environment."""
    name, value = word.split("=")
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: str, flags: str = "-u") -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, flags, "-m", *arguments],
            env=os.environ | {name: value},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()


def interrupt_after(process: "subprocess.Popen[str]", words: str, pause_s: float) -> str:
    """Send SIGINT when these words were said; all that was."""
    assert process.stdout is not None
    said = ""
    while words not in said:
        line = process.stdout.readline()
        assert line, said
        said += line
    time.sleep(pause_s)
    process.send_signal(signal.SIGINT)
    return said + process.communicate(timeout=120)[0]


def check(process: "subprocess.Popen[str]", said: str, word: str) -> None:
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert "Exception" not in said
    assert not [word for word in (" WARN ", " INFO ", "log4j") if word in said], "Spark's log"
    assert not [each for each in left(word) if "java" in each.split(" ")[0]]
    deadline = time.monotonic() + GONE_S_MAX
    while remaining := left(word):
        assert time.monotonic() < deadline, remaining
        time.sleep(0.2)


@pytest.mark.parametrize(
    ("words", "pause_s"),
    [
        ("starting Spark", 0.05),
        ("starting Spark", 1.0),
        ("starting Spark", 4.0),
        ("has started", 0.0),
        ("pipeline copies is starting", 3.0),
        ("live: copies", 1.0),
    ],
)
def test_a_pipeline_is_interrupted(
    entrepot_broker: Broker, tmp_path: Path, start: Start, word: str, words: str, pause_s: float
) -> None:
    create(entrepot_broker, "t", 1)
    produce(entrepot_broker, "t", texts(10))
    file = tmp_path / "interrupted_shop.py"
    file.write_text(SHOP)
    process = start(
        "entrepot.cli", "pipeline", "run", str(file), "--live",
        "--dir", str(tmp_path / "views"), "-b", entrepot_broker.bootstrap,
    )  # fmt: skip
    check(process, interrupt_after(process, words, pause_s), word)


def test_sparks_log_is_shown_when_asked_for(tmp_path: Path, start: Start) -> None:
    file = tmp_path / "verbose_shop.py"
    file.write_text(SHOP)
    process = start("entrepot.cli", "pipeline", "run", str(file), "--live", "--verbose")
    said = interrupt_after(process, "has started", 0.0)
    assert process.returncode == 130
    assert "log4j" in said


@pytest.mark.parametrize(
    "command",
    [("examples.demo",), ("entrepot.cli", "pipeline", "run", "missing.py", "--live")],
    ids=" ".join,
)
def test_a_command_is_interrupted_while_it_is_imported(
    start: Start, word: str, command: tuple[str, ...]
) -> None:
    process = start(*command, flags="-uv")  # Python says what it imports.
    check(process, interrupt_after(process, IMPORTED, 0.0), word)


@pytest.mark.parametrize(
    ("words", "pause_s"), [("starting Spark", 2.0), ("pipeline packed is starting", 5.0)]
)
def test_the_demo_is_interrupted(start: Start, word: str, words: str, pause_s: float) -> None:
    process = start("examples.demo")
    check(process, interrupt_after(process, words, pause_s), word)
