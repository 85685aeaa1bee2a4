"""What people install: the wheel, and what each of its extras brings."""

import json
import re
import shutil
import subprocess
import sys
import zipfile
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from entrepot.cli import main
from entrepot.cli.serve import serve

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_wheel_holds_the_package_and_nothing_for_tests(tmp_path: Path) -> None:
    tree = tmp_path / "tree"  # Building leaves files behind.
    for part in ("src", "sim", "bench"):
        leftovers = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so")
        shutil.copytree(ROOT / part, tree / part, ignore=leftovers)
    for name in ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", tmp_path, tree]
    subprocess.run(command, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        paths = [name.split("/") for name in archive.namelist()]
    assert {parts[0] for parts in paths if not parts[0].endswith(".dist-info")} == {
        "entrepot",
        "pyspark_entrepot.py",
    }
    assert ["entrepot", "server.py"] in paths
    assert [parts for parts in paths if "sim" in parts] == []


def test_the_image_and_the_unit_start_a_broker_with_options_that_there_are() -> None:
    unit = (ROOT / "config/entrepot.service").read_text("utf-8")
    (started,) = re.findall(r"^ExecStart=\S*/entrepot (.*)$", unit, re.M)
    image = (ROOT / "config/Containerfile").read_text("utf-8")
    (told,) = re.findall(r"^CMD (\[.*\])$", image, re.M)
    commands = [started.split(), json.loads(told)]
    commands += [line.split() for line in re.findall(r"^# +entrepot (serve .*)$", image, re.M)]
    compose = yaml.safe_load((ROOT / "config/compose.yaml").read_text("utf-8"))
    services = compose["services"].values()
    nodes = [each["command"] for each in services if each.get("image") == "entrepot"]
    assert len(nodes) == 3
    commands += nodes
    assert len(commands) == 6
    for command, *words in commands:
        assert command == "serve"
        options = {each for parameter in serve.params for each in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options
    copied = re.findall(r"^COPY (?!--)(.*) \S+$", image, re.M)
    assert copied
    for name in " ".join(copied).split():
        assert (ROOT / name).exists(), name


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd-analyze")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = (ROOT / "config/entrepot.service").read_text("utf-8")
    path = tmp_path / "entrepot.service"
    path.write_text(unit.replace("/opt/entrepot/bin/entrepot", shutil.which("true") or ""))
    command = ["systemd-analyze", "verify", "--man=no", str(path)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")


@pytest.mark.parametrize("library", ["pyarrow", "pyspark"])
def test_without_the_extra_of_spark_the_remedy_is_said(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("entrepot.spark")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)  # Means: there is none.
    checkout = "in a checkout of entrepot, .venv/bin/pip install -e '.[spark]'"
    remedy = f"{library} is missing: {checkout}"
    with pytest.raises(ModuleNotFoundError) as caught:
        import_module("entrepot.spark.source")
    assert str(caught.value) == remedy
    result = CliRunner().invoke(main, ["pipeline", "run", "x.py", "--live"])
    assert (result.exit_code, result.output) == (1, f"Error: {remedy}\n")
