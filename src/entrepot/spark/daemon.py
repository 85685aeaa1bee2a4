"""Spark's daemon of Python workers, which has imported what they need before it forks them.

Spark starts one daemon for each kind of work, and forks a worker for each task at a time. A
worker then imports the data source: a second of processor time for every one, which on two
cores was a third of a start. Here the daemon does it once, and workers find it done.

Set by `spark.python.daemon.module`. Nothing may be printed: the daemon's output is Spark's.
"""

import sys
from contextlib import suppress
from importlib import import_module

TASKS = "pyspark.worker"


def preload(kind: str) -> None:
    """Import what workers of this kind will import: the module that Spark runs them by."""
    import_module(kind)
    import_module("pyspark_entrepot")
    if kind == TASKS:
        with suppress(ImportError):  # Pipelines want more than the source does.
            import_module("entrepot.spark.pipelines")


if __name__ == "__main__":
    preload(sys.argv[1])
    from pyspark.daemon import manager

    manager()
