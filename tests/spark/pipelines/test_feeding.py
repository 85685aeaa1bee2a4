"""The feeder of the examples sends what their pipelines read."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark", reason="pip install 'entrepot[spark]' for this test")

from entrepot.cli import main
from entrepot.spark.pipelines import Topic
from entrepot.spark.pipelines.declaring import collect
from entrepot.testing import Broker, broker
from examples.pipelines.feed import FEEDS

ROOT = Path(__file__).parents[3]


@pytest.fixture
def server() -> Iterator[Broker]:
    with broker() as started:
        yield started


def test_every_example_has_a_feeder() -> None:
    files = (ROOT / "examples" / "pipelines").glob("*.py")
    assert {file.stem for file in files} - {"__init__", "feed"} == set(FEEDS)
    for name in FEEDS:
        text = (ROOT / "examples" / "pipelines" / f"{name}.py").read_text("utf-8")
        assert f"python -m examples.pipelines.feed {name}\n" in text


@pytest.mark.slow
@pytest.mark.parametrize("name", FEEDS)
def test_an_example_is_fed(name: str, server: Broker) -> None:
    feed = [sys.executable, "-m", "examples.pipelines.feed", name, "-b", server.bootstrap]
    subprocess.run(feed, cwd=ROOT, check=True, capture_output=True)
    made = collect(import_module(f"examples.pipelines.{name}"))
    inputs = {each for pipeline in made for each in pipeline.reads if isinstance(each, Topic)}
    sent = 0
    for topic in inputs:
        consumed = CliRunner().invoke(main, ["consume", topic.name, "-b", server.bootstrap])
        assert consumed.exit_code == 0, consumed.output
        for line in consumed.stdout.splitlines() if topic.schema else ():
            flat = re.sub(r"<.*?>+", "", str(topic.schema))
            assert set(json.loads(line)) == {field.split()[0] for field in flat.split(",")}
            sent += 1
    assert sent
