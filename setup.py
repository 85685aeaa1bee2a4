"""What pyproject.toml cannot say: with ENTREPOT_COMPILE=1 the modules it names are compiled.

mypyc translates them to C; they stay what they are, Python, and know nothing of it. See
docs/decisions/0014-mypyc.md.
"""

import os
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext


class ParallelBuild(build_ext):
    """Compiles several sources at a time; setuptools would compile them one after the other."""

    def build_extensions(self):
        compile_all = self.compiler.compile

        def compile_each(sources, *arguments, **settings):
            large_first = sorted(sources, key=os.path.getsize, reverse=True)
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                each = pool.map(lambda one: compile_all([one], *arguments, **settings), large_first)
                return [compiled for some in each for compiled in some]

        self.compiler.compile = compile_each
        super().build_extensions()


extensions = [
    Extension(
        "entrepot.spark._columns",
        ["src/entrepot/spark/_columns.c"],
        optional=True,  # Without a compiler its twin in Python does the work.
    )
]
requirements = []
if os.environ.get("ENTREPOT_COMPILE") == "1":
    settings = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))
    # Of its dependencies, the types are needed.
    requirements = ["mypy[mypyc]>=1.18", *settings["project"]["dependencies"]]
    if "bdist_wheel" in sys.argv:  # Before that, pip asks what the build requires.
        from mypyc.build import mypycify

        paths = [
            f"src/entrepot/{package}/{name}.py"
            for package, names in settings["tool"]["entrepot"]["compiled"].items()
            for name in names
        ]
        extensions += mypycify(paths, opt_level="1", debug_level="0", multi_file=True)

setup(cmdclass={"build_ext": ParallelBuild}, ext_modules=extensions, setup_requires=requirements)
