"""A Celery application, as somebody would write it who has RabbitMQ for a broker.

Where its broker is and where results go is said by the environment. Results are files: that
is a backend which does chords, and needs no other service.
"""

import os
import time
from pathlib import Path
from typing import Any

from celery import Celery

app = Celery("tasks", broker=os.environ["CELERY_BROKER"], backend=os.environ["CELERY_RESULTS"])
app.conf.update(
    broker_connection_retry_on_startup=True,
    result_chord_retry_interval=0.2,
    worker_prefetch_multiplier=1,
)


@app.task
def add(one: int, other: int) -> int:
    return one + other


@app.task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task(bind=True, max_retries=5)
def succeed_at_third(self: Any, path: str) -> int:
    """Fails twice. Each attempt is a line in the file."""
    with open(path, "a") as file:
        file.write("attempt\n")
    attempts = len(Path(path).read_text().splitlines())
    if attempts < 3:
        raise self.retry(exc=ValueError("not yet"), countdown=0.2)
    return attempts


@app.task(bind=True, max_retries=2)
def never_succeed(self: Any) -> None:
    raise self.retry(exc=ValueError("never"), countdown=0.1)


@app.task
def now() -> float:
    return time.time()


@app.task(acks_late=True)
def work(path: str, seconds: float) -> str:
    """Acknowledged when it is done; the file tells who began."""
    with open(path, "a") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(seconds)
    return "done"
