"""Addresses of object stores: `file:///archive`, or `s3://bucket/prefix`.

An address names a place and never holds a secret: it is a topic's setting, which others can read.
"""

from typing import NamedTuple
from urllib.parse import unquote, urlsplit

_EXAMPLES = "write file:///directory or s3://bucket/prefix"


class StoreAddress(NamedTuple):
    bucket: str | None  # None means: a directory of this machine.
    path: str  # The whole path of the directory; or what all names in the bucket begin with.


def parse_store_address(text: str) -> StoreAddress:
    """Return the parts of an address. Raises ValueError, with what is wrong."""
    if not text.isprintable():
        raise ValueError(f"has characters that cannot be printed; {_EXAMPLES}")
    try:
        scheme, host, path, query, fragment = urlsplit(text)
    except ValueError:
        raise ValueError(f"is not an address; {_EXAMPLES}") from None
    if scheme not in ("file", "s3"):
        raise ValueError(f"is neither a directory nor a bucket; {_EXAMPLES}")
    if query or fragment or "@" in host:
        raise ValueError(f"has more than a place; {_EXAMPLES}")
    if scheme == "s3":
        if not host:
            raise ValueError("names no bucket; write s3://bucket/prefix")
        return StoreAddress(host, path.strip("/"))
    directory = unquote(path).rstrip("/")
    if host or not directory or ".." in directory.split("/"):
        raise ValueError("is not a whole path; write file:///directory, with three slashes")
    return StoreAddress(None, directory)
