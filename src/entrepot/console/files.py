"""Reads the page's files, which are in the package."""

from importlib.resources import files


def page_files() -> dict[str, bytes]:
    """Return the files by their names."""
    page = files("entrepot.console") / "page"
    return {each.name: each.read_bytes() for each in page.iterdir() if each.is_file()}
