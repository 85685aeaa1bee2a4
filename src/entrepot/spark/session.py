"""Start a session of Spark for one command, and end it with everything that it started.

pyspark starts Java and leaves it to itself: a Ctrl-C that comes meanwhile is a traceback, and
Java goes on for a while. Here Java's process is known from its first moment and is gone
before the command is. It is in a session of its own, so that a Ctrl-C on the terminal reaches
the command and nobody else: the command decides what becomes of the queries.

What Java and its workers print is Spark's log. It is shown when asked for; otherwise the
last lines are kept, for when Java does not start.
"""

import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from socketserver import BaseServer
from typing import IO, TYPE_CHECKING, Any, Self
from unittest import mock

from entrepot.spark import class_archive
from entrepot.spark.java import prepare
from entrepot.spark.packing import NAME, PYTHON

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

END_S_MAX = 5.0
LOG_LINES_MAX = 200
WORDS_MAX = 3  # Lines of it that an error quotes: the scripts around Java have the last one.

# --conf and SPARK_CONF_DIR have the last word over these.
SETTINGS = {
    "spark.ui.showConsoleProgress": "false",
    "spark.python.daemon.module": "entrepot.spark.daemon",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}
# Java compiles what it runs often, and then, with more care, what it runs very often. In the
# first minute that second time was two fifths of its processor time, for little: so it begins
# ten times later. And a collector of garbage without threads of its own is enough for a driver.
_JAVA_OPTIONS = (
    "-XX:+UseSerialGC -XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=20000 "
    "-XX:Tier4CompileThreshold=100000 -XX:Tier4BackEdgeThreshold=400000"
)
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# What suits one machine; a cluster has more cores than the driver, and people who look at it.
LOCAL_SETTINGS = {
    JAVA_OPTIONS: _JAVA_OPTIONS,
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
}


class NoSession(Exception):
    """Spark did not start. The text says why."""


def settings_for(master: str, *, verbose: bool = False) -> dict[str, str]:
    """Return what a session on this master is started with."""
    level = "INFO" if verbose else "OFF"  # What goes wrong is one line of ours.
    local = LOCAL_SETTINGS if master.startswith("local") else {}
    return SETTINGS | local | {"spark.log.level": level}


class Session:
    """A session, from the start of its Java to the end. `kill` may be called at any moment."""

    def __init__(
        self,
        master: str,
        settings: Mapping[str, str],
        *,
        name: str,
        archive: str | None = None,
        verbose: bool = False,
        end_s_max: float = END_S_MAX,
    ) -> None:
        self._settings = {"spark.master": master, "spark.app.name": name, **settings}
        self._archive = archive
        self._verbose = verbose
        self._end_s_max = end_s_max  # For Java, to end by itself.
        self._java: subprocess.Popen[bytes] | None = None
        self._spark: SparkSession | None = None
        self._log: deque[str] = deque(maxlen=LOG_LINES_MAX)
        self._place: Path | None = None  # Made for it: what it leaves behind goes with it.

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> "SparkSession":
        """Start Java, and in it the session; NoSession says why that failed."""
        self._place = Path(tempfile.mkdtemp(prefix="entrepot-spark-"))
        self._settings.setdefault("spark.local.dir", str(self._place))
        if self._archive is not None:
            self._use_archive(self._place, Path(self._archive))
        prepare()
        if self._settings.get(JAVA_OPTIONS) == _JAVA_OPTIONS:  # Not where somebody set their own.
            self._settings[JAVA_OPTIONS] += class_archive.options_to_use()
        from pyspark import SparkConf, SparkContext, java_gateway
        from pyspark.core import context as context_module
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
        conf = SparkConf(loadDefaults=False).setAll(list(self._settings.items()))
        # Nothing else tells which process it is before it has started.
        with mock.patch.object(java_gateway, "Popen", self._begin):
            try:
                gateway = java_gateway.launch_gateway(conf)
            except PySparkException:
                raise NoSession(f"Java ended at its start: {self._last_words()}") from None
        try:
            # It would take SIGINT for itself, from some moment of its start on.
            with mock.patch.object(context_module, "signal"):
                context = SparkContext(conf=conf, gateway=gateway)
        except Exception as error:
            from entrepot.spark.pipelines.failing import reason_of

            raise NoSession(f"Spark did not start: {reason_of(error)}") from error
        self._spark = SparkSession(context)
        return self._spark

    def _begin(self, command: list[str], **how: Any) -> "subprocess.Popen[bytes]":
        how["start_new_session"] = True
        if self._archive is not None:
            how["cwd"] = self._place
        if not self._verbose:
            how |= {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        with _signals_wait():  # An exception in the middle would lose the process.
            self._java = subprocess.Popen(command, **how)
        if self._java.stdout is not None:
            threading.Thread(target=self._read, args=(self._java.stdout,), daemon=True).start()
        return self._java

    def _read(self, output: IO[bytes]) -> None:
        for line in output:
            self._log.append(line.decode(errors="replace").rstrip())

    def _last_words(self) -> str:
        said = [line for line in self._log if line.strip()]
        return "; ".join(said[-WORDS_MAX:]) or "it says nothing"

    def _use_archive(self, place: Path, archive: Path) -> None:
        """Have executors unpack it. What the driver starts is found under the same name."""
        if not archive.is_file():
            raise NoSession(f"{archive}: there is no such file; `entrepot pipeline pack` makes it")
        python = place / PYTHON
        python.parent.mkdir(parents=True)
        path = sys.executable.replace("'", "'\\''")
        python.write_text(f"#!/bin/sh\nexec '{path}' \"$@\"\n", "utf-8")
        python.chmod(0o755)
        self._settings.setdefault("spark.archives", f"{archive.absolute()}#{NAME}")
        os.environ["PYSPARK_PYTHON"] = PYTHON
        os.environ.pop("PYSPARK_DRIVER_PYTHON", None)

    def kill(self) -> None:
        """Have Java end at once. What it was at is done again from its checkpoint."""
        if self._java is not None:
            _send(self._java, signal.SIGKILL)

    def close(self) -> None:
        """End the session, then Java, then remove what they leave behind."""
        java, spark = self._java, self._spark
        self._java = self._spark = None
        try:
            if spark is not None and java is not None and java.poll() is None:
                spark.stop()
        finally:
            if java is not None:
                _end(java, self._end_s_max)
            if self._place is not None:
                shutil.rmtree(self._place, ignore_errors=True)


def _end(java: "subprocess.Popen[bytes]", wait_s_max: float) -> None:
    if java.stdin is not None:
        java.stdin.close()  # Java ends when nobody is there any more.
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(subprocess.TimeoutExpired):
            java.wait(wait_s_max)
            return
        _send(java, number)
    java.wait()


def _send(java: "subprocess.Popen[bytes]", number: int) -> None:
    """Send a signal to Java, and to the scripts that start it."""
    with suppress(ProcessLookupError):
        os.killpg(java.pid, number)


@contextmanager
def _signals_wait() -> Iterator[None]:
    """Handle SIGINT and SIGTERM when the block has ended."""
    came: list[int] = []
    handlers = {
        number: signal.signal(number, lambda number, _: came.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])


class Interrupts:
    """Ctrl-C and SIGTERM: they end what runs at once, or let it finish where it can.

    Whatever way a command is ended by them, it leaves no trace of Python and no Java behind.
    """

    def __init__(self, session: Session) -> None:
        self.told: int | None = None  # Which signal came.
        self._session = session
        self._is_patient = False

    def listen(self) -> None:
        """Handle both from now on."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._handle)

    def _handle(self, number: int, _: object) -> None:
        is_first, self.told = self.told is None, number
        if not (self._is_patient and is_first):
            # Whoever speaks with Java will complain: pyspark's server of counts, too.
            logging.disable(logging.CRITICAL)
            warnings.simplefilter("ignore")
            threading.excepthook = lambda _: None
            BaseServer.handle_error = lambda *_: None  # type: ignore[method-assign]
            self._session.kill()
            sys.exit(128 + number)

    @contextmanager
    def finishing(self) -> Iterator[None]:
        """Only note the first signal, for as long as the block lasts."""
        self._is_patient = True
        try:
            yield
        finally:
            self._is_patient = False

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Turn whatever comes of a signal into an exit with its code, and nothing else."""
        try:
            yield
        except KeyboardInterrupt:
            sys.exit(128 + signal.SIGINT)
        except BaseException:
            if self.told is not None:
                sys.exit(128 + self.told)
            raise
        if self.told is not None:
            sys.exit(128 + self.told)
