"""Requests that a browser sends on behalf of a page, which its user may know nothing of."""

from __future__ import annotations

from entrepot.wire.http.request import Request

_PORTS = {"http": ":80", "https": ":443"}


def is_foreign(request: Request) -> bool:
    """Return whether a browser sent this for a page that did not come from here.

    A browser adds the user's password by itself, whoever's page it is, and says whose in
    `Origin`. Other clients have no reason to send that header.
    """
    if request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        return True
    origin = request.headers.get("origin")
    if origin is None:
        return False
    scheme, _, page_host = origin.lower().partition("://")
    port = _PORTS.get(scheme)  # A browser leaves the default port out; others may write it.
    here = request.headers.get("host", "").lower()
    return port is None or page_host.removesuffix(port) != here.removesuffix(port)
