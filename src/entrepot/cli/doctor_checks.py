"""The checks of `entrepot doctor`. Each yields what it found, and nothing about what it cannot see.

Bounds are those at which a broker starts to suffer, not those at which it is at its best: a check
that warns on most machines would not be read.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import json
import os
import platform
import resource
import socket
import stat
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from entrepot.cli.presence import ENDPOINTS, is_running
from entrepot.config import Config
from entrepot.core import limits
from entrepot.log.layout import CLEAN_CHECKPOINT, PARTITIONS

OK, WARN, BAD = "ok", "warn", "bad"

SYNCS = 20  # How many are measured.
SYNC_BYTES = 4 * limits.KIB
SYNC_S_WARN, SYNC_S_BAD = 0.02, 0.2  # Of the median.
SEQUENCE_BYTES, SEQUENCE_PIECE_BYTES = 32 * limits.MIB, limits.MIB
SEQUENCE_S_MAX = 1.0  # Of writing: a slow disk is known by less.
SEQUENCE_WARN, SEQUENCE_BAD = 20 * limits.MIB, 2 * limits.MIB  # Bytes a second.
MEMORY_WARN, MEMORY_BAD = 512 * limits.MIB, 128 * limits.MIB
DESCRIPTORS_WARN, DESCRIPTORS_BAD = 16_384, 2_048
_UNSYNCHRONISED = 5  # What adjtimex returns, TIME_ERROR.
_CLOCK_MIN_S = 1_735_689_600  # 2025: whoever has an earlier clock has none.
_REMOTE = ("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p")


class Finding(NamedTuple):
    name: str
    state: str  # ok, warn or bad.
    text: str
    advice: str = ""  # What to do, unless it is fine.


Findings = Iterator[Finding]


def findings(config: Config, directory: Path) -> Findings:
    """Run all checks, one after the other. One that fails itself says so, and the next one runs."""
    checks: tuple[tuple[str, Callable[[], Findings]], ...] = (
        ("python", python),
        ("descriptors", descriptors),
        ("memory", memory),
        ("clock", lambda: clock(time.time())),
        ("data", lambda: data_directory(directory)),
        ("disk", lambda: disk(directory)),
        ("sync", lambda: sync(directory)),
        ("sequence", lambda: sequence(directory)),
        ("ports", lambda: ports(config, directory)),
        ("java", java),
        ("decoder", decoder),
    )
    for name, check in checks:
        try:
            yield from check()
        except OSError as error:
            yield Finding(name, WARN, f"cannot be looked at: {error.strerror or error}")


def python() -> Findings:
    version = platform.python_version()
    text = f"{platform.python_implementation()} {version}"
    if find_spec("uvloop") is None:
        advice = "pip install uvloop: without it the broker is slower."
        yield Finding("python", WARN, f"{text}, without uvloop", advice)
    else:
        yield Finding("python", OK, f"{text}, with uvloop")
    compiled = (import_module("entrepot.core.batch").__file__ or "").endswith((".so", ".pyd"))
    if compiled:
        yield Finding("build", OK, "compiled")
    else:
        yield Finding(
            "build", OK, "pure Python; a compiled one takes less: docs/guides/compiled.md"
        )


def descriptors() -> Findings:
    """The broker raises the soft limit itself, as far as the hard one allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        yield Finding("descriptors", OK, "no limit")
        return
    files = min(limits.FILES_OPEN_MAX, hard // 4)
    clients = max(0, min(limits.CONNECTIONS_MAX, hard - 2 * files))
    text = f"{hard:,}: enough for {clients:,} connections"
    advice = "Raise the hard limit: LimitNOFILE= of systemd, or nofile in limits.conf."
    yield _graded("descriptors", text, advice, -hard, -DESCRIPTORS_WARN, -DESCRIPTORS_BAD)


def memory() -> Findings:
    found = _memory_free()
    if found is None:
        return
    free, where = found
    text = f"{_size(free)} free{where}"
    advice = "Give it more: 512 MiB is little for a broker with clients, 128 MiB is too little."
    yield _graded("memory", text, advice, -free, -MEMORY_WARN, -MEMORY_BAD)


def _memory_free() -> tuple[int, str] | None:
    """Return the bytes that this process could still get, and what limits them."""
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    except OSError:
        return None
    by_name = dict(line.split(":", 1) for line in lines)
    free = int(by_name["MemAvailable"].split()[0]) * limits.KIB
    with contextlib.suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        largest = int((group / "memory.max").read_text("ascii"))  # "max" is no number.
        left = largest - int((group / "memory.current").read_text("ascii"))
        if left < free:
            return left, f" of the {_size(largest)} of this control group"
    return free, ""


def clock(now_s: float) -> Findings:
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now_s))
    if now_s < _CLOCK_MIN_S:
        advice = "Records would get that time, and retention goes by it. Set the clock."
        yield Finding("clock", BAD, shown, advice)
    elif _is_synchronised() is False:
        advice = "Run chrony, ntpd or systemd-timesyncd: retention and time to live go by it."
        yield Finding("clock", WARN, f"{shown}, not synchronised", advice)
    else:
        yield Finding("clock", OK, shown)


def _is_synchronised() -> bool | None:
    """Return whether the system's clock follows another. None means: it does not say."""
    if sys.platform != "linux":
        return None
    try:
        state: int = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != _UNSYNCHRONISED


def data_directory(directory: Path) -> Findings:
    place = directory.absolute()
    if not directory.exists():
        parent = next(each for each in place.parents if each.exists())
        if os.access(parent, os.W_OK | os.X_OK):
            yield Finding("data", OK, f"{place} will be made")
            yield from _file_system(parent)
        else:
            advice = f"Make it, or let this user write to {parent}."
            yield Finding("data", BAD, f"{place} is missing and cannot be made", advice)
        return
    if not directory.is_dir():
        yield Finding("data", BAD, f"{place} is no directory", "Choose another with --data-dir.")
        return
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        advice = "Start it as the user that owns the directory."
        yield Finding("data", BAD, f"{place} cannot be written to by this user", advice)
        return
    mode = stat.S_IMODE(directory.stat().st_mode)
    if mode & 0o077:
        advice = "The broker closes it to them when it starts. It should be nobody else's."
        yield Finding("data", WARN, f"{place} is open to other users ({mode:o})", advice)
    else:
        yield Finding("data", OK, f"{place}{_used(directory)}")
    yield from _file_system(place)


def _used(directory: Path) -> str:
    if is_running(directory):
        return ", a broker runs on it"
    if not (directory / PARTITIONS).is_dir():
        return ", new"
    stopped = (directory / CLEAN_CHECKPOINT).exists()
    return ", stopped cleanly" if stopped else ", not stopped cleanly: the next start recovers it"


def _file_system(place: Path) -> Findings:
    kind = _kind_of(place)
    if kind in ("tmpfs", "ramfs"):
        advice = "Choose a directory on a disk."
        yield Finding("filesystem", BAD, f"{kind}: in memory, gone with the machine", advice)
    elif kind == "overlay":
        advice = "Mount a volume there."
        yield Finding("filesystem", WARN, "overlay: gone with the container", advice)
    elif kind in _REMOTE:
        advice = "Use a local disk: a sync over a network is slow, and not all of them keep it."
        yield Finding("filesystem", WARN, f"{kind}: on another machine", advice)
    elif kind:
        yield Finding("filesystem", OK, kind)


def _kind_of(place: Path) -> str:
    """Return the type of the file system that a path is on; empty when it is not known."""
    try:
        lines = Path("/proc/self/mounts").read_text("utf-8").splitlines()
    except OSError:
        return ""
    best, kind = "", ""
    for line in lines:
        _, mount, found, *_ = line.split(" ")
        mount = mount.encode().decode("unicode_escape")
        if place.is_relative_to(mount) and len(mount) >= len(best):
            best, kind = mount, found
    return kind


def disk(directory: Path) -> Findings:
    found = os.statvfs(_existing(directory))
    free, size = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
    text = f"{_size(free)} free of {_size(size)}"
    advice = "Make room: when the disk is full, nothing can be published."
    state = BAD if free < limits.DISK_FREE_BYTES_LOW else WARN if free < size / 20 else OK
    yield Finding("disk", state, text, "" if state == OK else advice)


def sync(directory: Path) -> Findings:
    """Measure what every message waits for whose acknowledgement means: it is on disk."""
    place = _existing(directory)
    if not os.access(place, os.W_OK | os.X_OK):
        return
    times = sorted(_sync_times(place))
    middle, longest = statistics.median(times), times[-1]
    text = f"{1_000 * middle:.2f} ms in the middle, {1_000 * longest:.2f} ms at most"
    advice = "A faster disk, or `durability` as far as it may be less: docs/guides/durability.md."
    yield _graded("sync", text, advice, middle, SYNC_S_WARN, SYNC_S_BAD)


def _sync_times(place: Path) -> list[float]:
    path = place / f".doctor-{os.getpid()}"
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        times = []
        for _ in range(SYNCS):
            os.write(number, bytes(SYNC_BYTES))
            begun_s = time.perf_counter()
            os.fsync(number)
            times.append(time.perf_counter() - begun_s)
        return times
    finally:
        os.close(number)
        path.unlink()


def sequence(directory: Path) -> Findings:
    """Measure the speed of what the log does: it writes files from the beginning to the end, and
    reads them so."""
    place = _existing(directory)
    if not os.access(place, os.W_OK | os.X_OK):
        return
    written, read = _sequence_speeds(place)
    shown = f"{written / limits.MIB:,.0f} MiB/s", f"{read / limits.MIB:,.0f} MiB/s"
    text = f"writes {shown[0]}, reads {shown[1]} in sequence"
    advice = "A faster disk: nothing is stored faster than that."
    yield _graded("sequence", text, advice, -written, -SEQUENCE_WARN, -SEQUENCE_BAD)


def _sequence_speeds(place: Path) -> tuple[float, float]:
    """Return bytes a second: written, with the sync at the end, and read, from the disk where the
    system can be asked to forget what it has in memory."""
    path, size = place / f".doctor-{os.getpid()}", 0
    number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        # Some disks make less of what is alike.
        piece = hashlib.shake_128().digest(SEQUENCE_PIECE_BYTES)
        begun_s = time.perf_counter()
        while size < SEQUENCE_BYTES and time.perf_counter() - begun_s < SEQUENCE_S_MAX:
            size += os.write(number, piece)
        os.fsync(number)
        written_s = time.perf_counter()
        if sys.platform == "linux":
            os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
        os.lseek(number, 0, os.SEEK_SET)
        while os.read(number, SEQUENCE_PIECE_BYTES):
            pass
        return size / (written_s - begun_s), size / (time.perf_counter() - written_s)
    finally:
        os.close(number)
        path.unlink()


def _existing(directory: Path) -> Path:
    """Return the directory, or the one that it will be made in."""
    place = directory.absolute()
    return next(each for each in (place, *place.parents) if each.is_dir())


def ports(config: Config, directory: Path) -> Findings:
    ours: dict[str, int] = {}
    if is_running(directory):
        with contextlib.suppress(OSError, ValueError):
            ends = json.loads((directory / ENDPOINTS).read_text("utf-8"))
            ours = {name: end["port"] for name, end in ends.items()}
    wanted = {name: port for name, port in asdict(config.ports).items() if port}
    taken: list[str] = []
    for name, port in wanted.items():
        problem = None if ours.get(name) == port else _problem_with(config.host, port)
        if problem:
            taken.append(f"{port} ({name}): {problem}")
    if taken:
        advice = "See who has it (ss -ltnp), or choose another: --kafka-port, --http-port, …"
        yield Finding("ports", BAD, ", ".join(taken), advice)
    else:
        free = [str(port) for name, port in wanted.items() if ours.get(name) != port]
        texts = [f"{', '.join(free)} are free"] if free else []
        texts += ["the broker that runs has its own"] if ours else []
        yield Finding("ports", OK, ", ".join(texts))


def _problem_with(host: str, port: int) -> str | None:
    """Return why nobody can listen there now; None if that works."""
    try:
        ends = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        return f"{host}: {error.strerror}"
    for family, kind, protocol, _, address in ends:
        try:
            probe = socket.socket(family, kind, protocol)
        except OSError:
            continue  # No IPv6 here.
        with probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(address)
            except OSError as error:
                if error.errno != errno.EADDRNOTAVAIL or family == socket.AF_INET:
                    return os.strerror(error.errno or 0).lower()
    return None


def java() -> Findings:
    """Of no concern to the broker: for `entrepot pipeline`, where Spark is installed."""
    if find_spec("pyspark") is None:
        yield Finding("java", OK, "not needed: Spark is not installed (entrepot[spark])")
        return
    from entrepot.spark.java import NoJava, find_java_home

    try:
        yield Finding("java", OK, f"for Spark: {find_java_home()}")
    except NoJava as error:
        text, _, advice = str(error).partition(". ")
        yield Finding("java", WARN, f"for Spark: {text}", advice)


def decoder() -> Findings:
    """Of Spark's source: whether its loop over records was compiled."""
    if find_spec("pyspark") is None:
        return
    if find_spec("entrepot.spark._columns") is None:
        text = "for Spark: not compiled; reading takes several times as long"
        advice = "apt install gcc python3-dev, and install entrepot again."
        yield Finding("decoder", WARN, text, advice)
    else:
        yield Finding("decoder", OK, "for Spark: compiled")


def _graded(name: str, text: str, advice: str, value: float, warn: float, bad: float) -> Finding:
    """Return a finding about a value that should be small."""
    if value > bad:
        return Finding(name, BAD, text, advice)
    return Finding(name, WARN, text, advice) if value > warn else Finding(name, OK, text)


def _size(count: int) -> str:
    if count < limits.GIB:
        return f"{count / limits.MIB:,.0f} MiB"
    return f"{count / limits.GIB:,.1f} GiB"
