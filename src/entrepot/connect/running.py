"""One run of one connector, from its settings to its end."""

import asyncio
import logging
from functools import partial
from typing import Any

from entrepot.client.client import Client
from entrepot.connect.dead_letters import DeadLetters
from entrepot.connect.interface import Context, Source
from entrepot.connect.registry import find
from entrepot.connect.retrying import Patience
from entrepot.connect.settings import Settings
from entrepot.connect.sink_runner import SinkRunner
from entrepot.connect.source_runner import SourceRunner
from entrepot.core.ports import Clock

REPORT_S = 60.0

log = logging.getLogger("entrepot.connect")


class Run:
    """Made before anything is connected: a mistake in the settings raises ConfigError."""

    def __init__(self, settings: Settings, path: str) -> None:
        self._settings = settings
        self._class, self._options = find(settings, path)
        self.stop = asyncio.Event()  # Set it, and the run ends after what it is doing.

    async def run(self, client: Client, clock: Clock, *, once: bool) -> None:
        name = self._settings.name
        patience = Patience(name, self.stop, patience_s=self._settings.errors.patience_s)
        letters = DeadLetters(name, self._settings.errors.dead_letters, client, clock)
        context = Context(name, clock, letters.reject, patience.persist)
        make: Any = partial(self._class, self._options, context)
        runner: SourceRunner | SinkRunner
        if issubclass(self._class, Source):
            runner = SourceRunner(self._settings, make, client, clock, patience)
        else:
            runner = SinkRunner(self._settings, make, client, patience, letters)
        log.info("started", extra={"connector": name, "kind": self._settings.connector})
        report = asyncio.create_task(_report(name, runner))
        try:
            await runner.run(self.stop, once=once)
        finally:
            report.cancel()
            counts = {"records": runner.count, "dead_letters": runner.dead_count}
            log.info("ended", extra={"connector": name, **counts})


async def _report(name: str, runner: SourceRunner | SinkRunner) -> None:
    """How it is getting on, once in a while."""
    said = 0
    while True:
        await asyncio.sleep(REPORT_S)
        if runner.count != said:
            said = runner.count
            log.info("moved", extra={"connector": name, "records": said})
