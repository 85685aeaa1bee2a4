"""What Java loads at a start of Spark, kept in a file for the next starts.

A start is some 20,000 classes that Java finds in 300 jars, checks and links, which is half of its
processor time. It can keep them as they are in its memory (class data sharing): written when a
Java ends that was told so at its start, and mapped by later ones. A file fits one Java and one set
of jars. Java looks whether it does, and goes on without it if not.

It is made on demand only, for it takes a minute and about 200 MB.
"""

import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from entrepot.spark.java import cache_directory

SUFFIX = ".jsa"


class NoArchive(Exception):
    """It could not be made. The text says why."""


def archive_path() -> Path:
    """Return where the file for this Java and this Spark is, or would be. JAVA_HOME must be set."""
    import pyspark

    java = Path(os.environ["JAVA_HOME"]).resolve()
    about = f"{java} {Path(pyspark.__file__).resolve()}"
    name = f"spark-{pyspark.__version__}-{zlib.crc32(about.encode()):08x}{SUFFIX}"
    return cache_directory() / name


def options_to_use() -> str:
    """Return the options that make Java use the file; empty if there is none."""
    path = archive_path()
    return f" -XX:SharedArchiveFile={path}" if path.is_file() and _is_plain(path) else ""


@contextmanager
def making() -> Iterator[str]:
    """Yield the options that make a Java write the file when it ends, which is within the block."""
    path = archive_path()
    if not _is_plain(path):
        raise NoArchive(f"{path}: Spark hands no path with blanks to Java; set XDG_CACHE_HOME")
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        yield f" -XX:ArchiveClassesAtExit={new}"
        if not new.is_file():
            raise NoArchive("Java ended without writing down its classes")
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def _is_plain(path: Path) -> bool:
    return not set(" '\"\\") & set(str(path))
