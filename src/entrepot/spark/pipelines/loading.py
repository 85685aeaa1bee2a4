"""A file of Python, with the pipelines in it.

Its functions may go to other processes, which could not import it: it is in no package and
on nobody's path. So they are sent whole, not by name.
"""

import importlib.util
import sys
import traceback
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from unittest import mock

from pyspark import SparkContext, cloudpickle
from pyspark.errors import PySparkRuntimeError
from pyspark.sql.udf import UserDefinedFunction

from entrepot.spark.errors import PipelineError


def load(path: str) -> ModuleType:
    """Load a file as a module; like a program that is started, it finds modules beside it."""
    place = Path(path).absolute()
    if not place.is_file():
        raise PipelineError(f"{path}: there is no such file")
    spec = importlib.util.spec_from_file_location(place.stem, place)
    if spec is None or spec.loader is None:
        raise PipelineError(f"{path} is not a file of Python: its name ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(place.parent))
    sys.modules[place.stem] = module
    try:
        with _types_as_text():
            spec.loader.exec_module(module)
    except PipelineError as error:
        raise PipelineError(f"{path}{_line(error, place)}: {error}") from error
    except Exception as error:
        if _needs_spark(error):
            raise PipelineError(
                f"{path}{_line(error, place)}: Spark makes columns, and has not started yet when "
                "the file is loaded: make them within a function"
            ) from error
        kind = type(error).__name__
        raise PipelineError(f"{path}{_line(error, place)}: {kind}: {error}") from error
    cloudpickle.register_pickle_by_value(module)
    return module


def _types_as_text() -> AbstractContextManager[object]:
    """Let functions for columns be made: Spark parses their types, and has not started yet.

    It asks for the type again when a function is used, and parses it then.
    """
    return mock.patch.object(
        UserDefinedFunction, "returnType", property(lambda made: made._returnType)
    )


def _needs_spark(error: Exception) -> bool:
    """Return whether pyspark complains that there is no session."""
    if not isinstance(error, AssertionError | PySparkRuntimeError):
        return False
    *_, last = traceback.extract_tb(error.__traceback__)
    return SparkContext._active_spark_context is None and "/pyspark/" in last.filename


def _line(error: Exception, place: Path) -> str:
    """Return the last line of the file itself on the way to the error."""
    if isinstance(error, SyntaxError) and error.filename == str(place):
        return f", line {error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(place)]
    return f", line {lines[-1]}" if lines else ""
