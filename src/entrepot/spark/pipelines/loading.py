"""A file of Python, with the pipelines in it.

Its functions may go to other processes, which could not import it: it is in no package and
on nobody's path. So they are sent whole, not by name.
"""

import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from pyspark import cloudpickle

from entrepot.spark.pipelines.declaring import PipelineError


def load(path: str) -> ModuleType:
    """The module; it finds what is beside it, as a program that is started does."""
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
        spec.loader.exec_module(module)
    except PipelineError as error:
        raise PipelineError(f"{path}{_line(error, place)}: {error}") from error
    except Exception as error:
        kind = type(error).__name__
        raise PipelineError(f"{path}{_line(error, place)}: {kind}: {error}") from error
    cloudpickle.register_pickle_by_value(module)
    return module


def _line(error: Exception, place: Path) -> str:
    """The last line of the file itself on the way to the error."""
    if isinstance(error, SyntaxError) and error.filename == str(place):
        return f", line {error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(place)]
    return f", line {lines[-1]}" if lines else ""
