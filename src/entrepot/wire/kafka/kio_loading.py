"""kio, without what it brings along where its tests could run.

Where hypothesis is installed, kio registers its types with it: an import that takes longer
than most commands, and is of no use to them.
"""

import sys


def load_kio() -> None:
    """To be called before anything imports kio."""
    if "hypothesis" not in sys.modules:
        sys.modules["hypothesis"] = None  # type: ignore[assignment]  # Means: there is none.
        try:
            import kio.static.primitive  # noqa: F401
        finally:
            del sys.modules["hypothesis"]
