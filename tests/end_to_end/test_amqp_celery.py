"""Celery with a real worker: tasks that fail and are tried again, one for later, a chord.

With AMQP=host:port in the environment it is run on the broker that is there.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from entrepot import testing

pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).parent.parent.parent
READY_S_MAX = RESULT_S_MAX = 60.0
TASKS = "tests.end_to_end.celery_tasks"


class Worker:
    def __init__(self, environment: dict[str, str], log: Path, queue: str = "celery") -> None:
        command = [sys.executable, "-m", "celery", "-A", TASKS, "worker", "--pool", "threads",
                   "--concurrency", "4", "--loglevel", "INFO", "--queues", queue,
                   "--hostname", f"{uuid4().hex[:8]}@%h"]  # fmt: skip
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=output, stderr=output
            )

    def is_ready(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()
        return " ready." in self._log.read_text()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(30)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    results = tmp_path_factory.mktemp("results")
    if "AMQP" in os.environ:
        yield told(os.environ["AMQP"], results)
        return
    with testing.broker() as broker:
        host, port = broker.endpoints["amqp"]
        yield told(f"{host}:{port}", results)


def told(address: str, results: Path) -> dict[str, str]:
    where = {"CELERY_BROKER": f"amqp://guest:guest@{address}//", "CELERY_RESULTS": results.as_uri()}
    return os.environ | where


@pytest.fixture(scope="module")
def worker(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    made = Worker(environment, tmp_path_factory.mktemp("worker") / "log")
    eventually(made.is_ready)
    yield
    made.stop()


@pytest.fixture(scope="module")
def tasks(environment: dict[str, str]) -> Any:
    """The application as its clients import it."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("CELERY_BROKER", "CELERY_RESULTS"):
            patch.setenv(name, environment[name])
        from tests.end_to_end import celery_tasks
    return celery_tasks


def eventually(condition: Any) -> None:
    deadline = time.monotonic() + READY_S_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.usefixtures("worker")
def test_a_task_and_its_result(tasks: Any) -> None:
    assert tasks.add.delay(2, 3).get(timeout=RESULT_S_MAX) == 5


@pytest.mark.slow
@pytest.mark.usefixtures("worker")
def test_workers_answer_to_control(tasks: Any) -> None:
    """A fanout exchange, and queues that delete themselves."""
    assert [list(answer.values()) for answer in tasks.app.control.ping(timeout=10, limit=1)] == [
        [{"ok": "pong"}]
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("worker")
def test_a_task_that_fails_is_tried_again(tasks: Any, tmp_path: Path) -> None:
    path = tmp_path / "attempts"
    assert tasks.succeed_at_third.delay(str(path)).get(timeout=RESULT_S_MAX) == 3
    assert path.read_text().count("attempt") == 3


@pytest.mark.slow
@pytest.mark.usefixtures("worker")
def test_a_task_that_always_fails_has_failed(tasks: Any) -> None:
    with pytest.raises(ValueError, match="never"):
        tasks.never_succeed.delay().get(timeout=RESULT_S_MAX)


@pytest.mark.slow
@pytest.mark.usefixtures("worker")
def test_a_task_for_later(tasks: Any) -> None:
    due = datetime.now(UTC) + timedelta(seconds=2)
    ran = tasks.now.apply_async(eta=due).get(timeout=RESULT_S_MAX)
    assert ran >= due.timestamp()
    assert ran < due.timestamp() + 20


@pytest.mark.slow
@pytest.mark.usefixtures("worker")
def test_a_chord(tasks: Any) -> None:
    from celery import chord

    parts = [tasks.add.s(number, number) for number in range(20)]
    assert chord(parts)(tasks.total.s()).get(timeout=RESULT_S_MAX) == 380


@pytest.mark.slow
@pytest.mark.usefixtures("worker")
def test_many_tasks(tasks: Any) -> None:
    from celery import group

    results = group(tasks.add.s(number, 1) for number in range(200))().get(timeout=RESULT_S_MAX)
    assert results == list(range(1, 201))


@pytest.mark.slow
def test_a_killed_workers_task_is_done_by_another(
    environment: dict[str, str], tasks: Any, tmp_path: Path
) -> None:
    """Proves D-02 by way of Celery: acknowledged late, so it comes again."""
    begun = tmp_path / "begun"
    first = Worker(environment, tmp_path / "first", "mortal")
    eventually(first.is_ready)
    result = tasks.work.apply_async((str(begun), 3.0), queue="mortal")
    eventually(begun.exists)
    first.kill()
    second = Worker(environment, tmp_path / "second", "mortal")
    try:
        assert result.get(timeout=RESULT_S_MAX) == "done"
    finally:
        second.stop()
    assert len(set(begun.read_text().split())) == 2
