"""Sends sessions to a broker, several side by side, and watches it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from random import Random

from kio.schema.metadata.v12.request import MetadataRequest

from bench.pinger import Pinger, Waits
from entrepot.testing import Broker
from tests.end_to_end.bare import BareClient
from tests.fuzz import amqp, amqp10, http, kafka, mqtt, sqs, stomp
from tests.fuzz.session import Session, Speaker, make_session

SPEAKERS = {
    "kafka": Speaker(kafka.speak, kafka.ANSWER),
    "amqp": Speaker(amqp.speak, amqp.ANSWER),
    "amqp10": Speaker(amqp10.speak, amqp10.ANSWER),
    "mqtt": Speaker(mqtt.speak, mqtt.ANSWER),
    "http": Speaker(http.speak, http.ANSWER, is_each_answered=True),
    "sqs": Speaker(sqs.speak, http.ANSWER, is_each_answered=True, learns=sqs.learn),
    "stomp": Speaker(stomp.speak, stomp.ANSWER, learns=stomp.learn),
}
_PORTS = {"amqp10": "amqp"}  # Those that share the port of another.
SETTINGS = {"ports.http": 0, "ports.sqs": 0, "durability": "os"}

IDLE_S = 1.5  # Nothing came for so long: the session is over, unless its end was heard before.
SESSION_S_MAX = 10.0
RESTART_S_MAX = 300.0  # What was written has to be read after a kill, and synced at a stop.
LOG_S = 0.05  # What it says is said as a whole by then.
STALL_MS_MAX = 100.0
SESSIONS_KEPT = 200  # Of those before a finding.
FINDINGS_MAX = 50

_TROUBLE = re.compile(r"Traceback|CRITICAL|never awaited|never retrieved|Exception ignored")
_TAIL = 128  # Bytes of an answer that may be its beginning.
_RESET = struct.pack("ii", 1, 0)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Put off the end of this process: a broker that has just been begun is not known yet."""
    asked: list[int] = []
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    for each in before:
        signal.signal(each, lambda number, _: asked.append(number))
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    if asked:
        signal.raise_signal(asked[0])


@dataclass
class Tally:
    """What a run comes to."""

    frames: int = 0  # Without echoes.
    judged: int = 0  # Of these, those in sessions that waited for answers:
    looked_at: int = 0  # the broker has looked at so many of them for certain,
    after_damage: int = 0  # and at so many that came after one that is not right.
    sessions: int = 0
    closed: int = 0  # Sessions that the broker ended.
    exits: int = 0
    tracebacks: int = 0
    stalls: int = 0
    wait_ms: float = 0.0  # The longest of the client that does nothing wrong,
    busy_ms: float = 0.0  # and without the time in which the broker was not let run.
    control_ms: float = 0.0
    rss_mib: list[int] = field(default_factory=list)
    kinds: dict[str, int] = field(default_factory=dict)  # Of findings, and how often each.
    seconds: float = 0.0
    restart_s: list[float] = field(default_factory=list)  # After a kill, and with a stop.

    def __str__(self) -> str:
        rss = self.rss_mib or [0]
        return (
            f"frames={self.frames} looked_at={self.depth:.0%} after_damage={self.after_damage} "
            f"connections={self.sessions} closed={self.closed} exits={self.exits} "
            f"tracebacks={self.tracebacks} stalls={self.stalls} longest_wait_ms={self.wait_ms:.0f} "
            f"without_scheduling_ms={self.busy_ms:.0f} control_wait_ms={self.control_ms:.0f} "
            f"rss_mib={rss[0]}/{rss[-1]}/{max(rss)} "
            f"restart_s={'/'.join(f'{each:.1f}' for each in self.restart_s)} "
            f"frames_per_s={self.frames / max(self.seconds, 0.001):.0f}"
        )

    @property
    def depth(self) -> float:
        """Return which part of the frames the broker has looked at."""
        return self.looked_at / max(self.judged, 1)

    @property
    def is_clean(self) -> bool:
        return not self.exits and not self.tracebacks


class Fuzzer:
    def __init__(self, protocol: str, seed: int, *, findings: Path, connections: int = 24) -> None:
        self._protocol = protocol
        self._speaker = SPEAKERS[protocol]
        self._seed = seed
        self._findings = findings
        self._connections = connections
        self._at_once = 20 * connections  # Sessions between two looks.
        self._broker = Broker(settings=SETTINGS)
        self._broker.patience_s = RESTART_S_MAX
        self._recent: deque[Session] = deque(maxlen=SESSIONS_KEPT)
        # What is said in the place of what stands for it: ids of topics, receipts.
        self._known: dict[bytes, bytes] = {}
        self._log_read = 0
        self._pinger: Pinger | None = None
        self.tally = Tally()

    def _address(self, protocol: str) -> tuple[str, int]:
        return self._broker.endpoints[_PORTS.get(protocol, protocol)]

    def run(self, frames: int, seconds: float = float("inf")) -> Tally:
        """Sessions of the seed, until they have that many frames or took that long."""
        return self._run(self._sessions(frames, time.monotonic() + seconds))

    def replay(self, sessions: Iterable[Session]) -> Tally:
        """These, one at a time, and look after each."""
        self._connections = self._at_once = 1
        return self._run(iter(sessions))

    def _sessions(self, frames: int, until_s: float) -> Iterator[Session]:
        number = 0
        while self.tally.frames < frames and time.monotonic() < until_s:
            yield make_session(self._protocol, self._speaker.speak, self._seed, number)
            number += 1

    def _run(self, sessions: Iterator[Session]) -> Tally:
        started_s = time.monotonic()
        try:
            self._start()
            while batch := list(islice(sessions, self._at_once)):
                asyncio.run(self._converse(batch))
                self._look()
            self._start_again()
        finally:
            self.tally.seconds = time.monotonic() - started_s
            try:
                self._end_pinger()
            finally:
                self._broker.kill()
                self._broker.close()
        return self.tally

    # --- the broker

    def _start(self) -> None:
        with _undisturbed():
            self._broker.start()
        self._make_topics()
        self._warm_up()
        self._pinger = Pinger(*self._broker.endpoints["kafka"], self._broker.pid)
        self._pinger.__enter__()
        self.tally.rss_mib.append(self._rss_mib())

    def _start_again(self) -> None:
        """Whatever was stored must not keep it from starting, after a kill and after a stop."""
        self._end_pinger()
        for end in (self._broker.kill, self._broker.stop):
            began_s = time.monotonic()
            try:
                end()
                with _undisturbed():
                    self._broker.start()
                self.tally.restart_s.append(time.monotonic() - began_s)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                self.tally.exits += 1
                self.found("start", str(error))
                return
        for trouble in _troubles(self._new_log()):
            self.tally.tracebacks += 1
            self.found("traceback", trouble)

    def _make_topics(self) -> None:
        """Those that somebody deleted, too."""
        with BareClient(self._broker) as client:
            for name in ("orders", "events", "compact"):
                settings = {"cleanup.policy": "compact"} if name == "compact" else {}
                client.try_create(name, 2, settings)
            self._known |= _topic_ids(client)

    def _warm_up(self) -> None:
        """Have loaded what is loaded for the first client of a protocol."""
        for protocol, said in (
            ("amqp", b"".join(amqp.speak(Random(1))[:4])),
            ("amqp10", amqp10.greeting(Random(1))[0]),
            ("http", b"GET /api/overview HTTP/1.0\r\n\r\n"),
            ("stomp", b"CONNECT\n\n\0"),
            ("mqtt", mqtt.connect(Random(1), 5)),
            ("sqs", b"GET /?Action=ListQueues HTTP/1.0\r\n\r\n"),
        ):
            with socket.create_connection(self._address(protocol), 30) as client:
                client.sendall(said)
                client.recv(65_536)

    def _end_pinger(self) -> None:
        if self._pinger is not None:
            self._pinger.__exit__()
            self._pinger = None

    def _rss_mib(self) -> int:
        if not sys.platform.startswith("linux"):
            return 0
        with open(f"/proc/{self._broker.pid}/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20

    def _look(self) -> None:
        """Note what happened since the last time."""
        tally = self.tally
        waits = self._waits()
        if waits is None:
            tally.exits += 1
            self.found("exit", self._new_log())
            self._end_pinger()
            self._broker.kill()
            self._start()
            return
        tally.wait_ms = max(tally.wait_ms, waits.broker_ms)
        tally.busy_ms = max(tally.busy_ms, waits.busy_ms)
        tally.control_ms = max(tally.control_ms, waits.control_ms)
        if waits.stall_ms > STALL_MS_MAX:
            tally.stalls += 1
            self.found("stall", f"{waits.busy_ms} ms, the control {waits.control_ms} ms")
        tally.rss_mib.append(self._rss_mib())
        self._make_topics()
        log = self._new_log()
        for trouble in _troubles(log):
            tally.tracebacks += 1
            self.found("traceback", trouble)

    def _waits(self) -> Waits | None:
        assert self._pinger is not None
        try:
            return self._pinger.waits()
        except Exception:  # It ended, with the broker.
            return None

    def _new_log(self) -> str:
        time.sleep(LOG_S)
        with self._broker.log_path.open("rb") as log:
            log.seek(self._log_read)
            data = log.read()
        self._log_read += len(data)
        return data.decode(errors="replace")

    def found(self, kind: str, what: str) -> None:
        name = f"{kind}: {_signature(what)}"
        count = self.tally.kinds[name] = self.tally.kinds.get(name, 0) + 1
        if count > 1 or len(self.tally.kinds) > FINDINGS_MAX:
            return
        self._findings.mkdir(parents=True, exist_ok=True)
        stem = f"{self._protocol}-{self._seed}-{kind}-{len(self.tally.kinds)}"
        path = self._findings / f"{stem}.json"
        document = {
            "protocol": self._protocol,
            "seed": self._seed,
            "what": what,
            "last": self._recent[-1].number if self._recent else None,
            "sessions": [
                [each.number, each.manner, [frame.hex() for frame in each.frames]]
                for each in self._recent
            ],
        }
        path.write_text(json.dumps(document, indent=1))
        print(f"{name}\n  {path}", flush=True)

    # --- sessions

    async def _converse(self, sessions: list[Session]) -> None:
        waiting = deque(sessions)

        async def work() -> None:
            while waiting:
                await self._hold(waiting.popleft())

        await asyncio.gather(*(work() for _ in range(self._connections)))

    def note(self, session: Session) -> None:
        self._recent.append(session)
        self.tally.sessions += 1
        self.tally.frames += session.count

    async def _hold(self, session: Session) -> None:
        self.note(session)
        talk = _Talk(session, self._speaker, self._known)
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: talk, *self._address(self._protocol))
        except OSError:
            return  # It is gone; `_look` finds out.
        try:
            async with asyncio.timeout(SESSION_S_MAX):
                await talk.say()
        except TimeoutError:
            pass
        finally:
            talk.end()
        self.tally.closed += talk.is_closed
        if session.manner != "gone":
            looked_at, after_damage = self._speaker.looked_at(session, talk.answers)
            self.tally.judged += session.count
            self.tally.looked_at += looked_at
            self.tally.after_damage += after_damage


class _Talk(asyncio.Protocol):
    """One connection."""

    def __init__(self, session: Session, speaker: Speaker, known: dict[bytes, bytes]) -> None:
        self._session = session
        self._speaker = speaker
        self._known = known
        self._own: dict[bytes, bytes] = {}
        self._heard = asyncio.Event()
        self._tail = b""
        self.answers: Counter[bytes] = Counter()
        self.is_closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        start, data = len(self._tail), self._tail + data
        self.answers.update(self._speaker.answers(data, start))
        if self._speaker.learns is not None:
            self._own |= (learned := self._speaker.learns(data))
            self._known.update(learned)
        self._tail = data[-_TAIL:]
        self._heard.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closed = True
        self._heard.set()

    @property
    def _is_over(self) -> bool:
        return self.is_closed or self._speaker.is_over(self._session, self.answers)

    async def say(self) -> None:
        """Say it all, and listen until the last answer or the connection's end."""
        manner = self._session.manner
        for place, data in enumerate(self._session.writes()):
            for placeholder, known in (*self._own.items(), *self._known.items()):
                data = data.replace(placeholder, known)
            self._transport.write(data)
            if place == 0 and manner not in ("blind", "gone"):
                await self._hear()  # What it says now is what the rest relies on.
            else:
                await asyncio.sleep(0)
            if self.is_closed:
                break
        if manner == "gone":
            connected = self._transport.get_extra_info("socket")
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            return
        while not self._is_over:
            if not await self._hear():
                return

    async def _hear(self) -> bool:
        """Return whether there was something in time."""
        try:
            await asyncio.wait_for(self._heard.wait(), IDLE_S)
        except TimeoutError:
            return False
        self._heard.clear()
        return True

    def end(self) -> None:
        self._transport.abort()


def _topic_ids(client: BareClient) -> dict[bytes, bytes]:
    answer = client.ask(MetadataRequest(topics=None, include_topic_authorized_operations=False))
    known = {str(topic.name): topic.topic_id.bytes for topic in answer.topics}
    return {kafka.TOPIC_IDS[name]: known[name] for name in kafka.TOPIC_IDS if name in known}


def _troubles(log: str) -> Iterator[str]:
    """Each traceback, with the line before it, and other lines that should not be there."""
    lines = log.splitlines()
    for place, line in enumerate(lines):
        if not _TROUBLE.search(line):
            continue
        end = place + 1
        while end < len(lines) and lines[end].startswith((" ", "\t")):
            end += 1
        yield "\n".join(lines[max(place - 1, 0) : end + 1])


def _signature(what: str) -> str:
    """What is alike in findings that are the same."""
    places = re.findall(r'File ".*?/(\w+/\w+\.py)", line (\d+)', what)
    last = what.strip().splitlines()[-1] if what.strip() else ""
    if places:
        return f"{':'.join(places[-1])} {last.split(':')[0]}"
    return re.sub(r"\d+", "#", last)[:150]


def read_finding(path: Path) -> tuple[str, list[Session]]:
    document = json.loads(path.read_text())
    sessions = [
        Session(number, tuple(bytes.fromhex(frame) for frame in frames), manner)
        for number, manner, frames in document["sessions"]
    ]
    return document["protocol"], sessions
