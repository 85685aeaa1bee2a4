"""What pyproject.toml cannot say: with ENTREPOT_COMPILE=1 the modules it names are compiled.

mypyc translates them to C; they stay what they are, Python, and know nothing of it. See
docs/decisions/0014-mypyc.md.
"""

import os
import sys
import tomllib
from pathlib import Path

from setuptools import Extension, setup

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
        extensions += mypycify(paths, opt_level="2", debug_level="0", multi_file=True)

setup(ext_modules=extensions, setup_requires=requirements)
