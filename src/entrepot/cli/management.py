"""What the commands for queues share: they talk to a broker's management port, over HTTP.

One request after the other over one connection, with the standard library. What goes wrong
is one line for people, and `Refused` for those who know better what to say.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import click

from entrepot.cli.security import chosen_user, read_password, user_options
from entrepot.cli.talk import CONNECT_S, key_values

TIMEOUT_S = 60.0  # Of an answer.
GUEST = "guest"  # Both the name and the password.
UNAUTHORIZED = 401

_Command = TypeVar("_Command", bound=Callable[..., Any])

_address_option = click.option(
    "--http",
    "address",
    metavar="HOST:PORT",
    default="127.0.0.1:15672",
    envvar="ENTREPOT_HTTP",
    show_default=True,
    show_envvar=True,
    expose_value=False,
    callback=lambda context, parameter, value: context.meta.__setitem__(__name__, value),
    help="A broker's management port.",
)
vhost_option = click.option(
    "-p", "--vhost", metavar="NAME", default="/", show_default=True, help="The virtual host."
)


def management_options(command: _Command) -> _Command:
    """Where the broker is, and who we are: `connect` finds them."""
    return _address_option(user_options(command))


class Refused(click.ClickException):
    """What the broker answered."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Unreachable(click.ClickException):
    """Nobody is there."""


class Api:
    def __init__(self, address: str, user: str, password: str) -> None:
        from http.client import HTTPConnection

        host, colon, port = address.rpartition(":")
        if not colon or not host or not port.isdecimal() or int(port) > 65535:
            raise click.ClickException(f"{address!r} is not an address: HOST:PORT")
        self._address = address
        self._user = user
        self._connection = HTTPConnection(host.strip("[]"), int(port), timeout=CONNECT_S)
        token = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._headers = {"Authorization": f"Basic {token}"}

    def get(self, *path: str, **query: str) -> Any:
        return self.ask("GET", path, query=query)

    def put(self, *path: str, body: object = None) -> Any:
        return self.ask("PUT", path, body)

    def post(self, *path: str, body: object = None) -> Any:
        return self.ask("POST", path, body)

    def delete(self, *path: str, **query: str) -> Any:
        return self.ask("DELETE", path, query=query)

    def ask(
        self,
        method: str,
        path: tuple[str, ...],
        body: object = None,
        query: Mapping[str, str] | None = None,
    ) -> Any:
        """What the answer says. Raises Refused, Unreachable."""
        target = "/api/" + "/".join(quote(segment, safe="") for segment in path)
        if query:
            target += "?" + urlencode(query)
        data = None if body is None else json.dumps(body).encode()
        return self._read(*self._exchange(method, target, data))

    def metrics(self) -> str:
        """What `/metrics` says. Raises Refused, Unreachable."""
        status, said = self._exchange("GET", "/metrics", None)
        if status != 200:
            self._read(status, said)
            raise Unreachable(f"what answers at {self._address} has no metrics")
        return said.decode("utf-8", "replace")

    def _exchange(self, method: str, target: str, data: bytes | None) -> tuple[int, bytes]:
        from http.client import HTTPException, RemoteDisconnected

        try:
            try:
                if not self._connection.sock:
                    self._connection.connect()
                    self._connection.sock.settimeout(TIMEOUT_S)
                self._connection.request(method, target, data, self._headers)
                response = self._connection.getresponse()
                return response.status, response.read()
            except Exception:
                self._connection.close()  # Else it would take no other request.
                raise
        except RemoteDisconnected:
            raise Unreachable(
                f"what answers at {self._address} does not speak HTTP; "
                "the management port is 15672 by default"
            ) from None
        except OSError as error:
            raise Unreachable(
                f"no broker answers at {self._address}: {error.strerror or error} "
                "(is it running, and is its HTTP port on?)"
            ) from None
        except HTTPException:
            raise Unreachable(f"what answers at {self._address} does not speak HTTP") from None

    def _read(self, status: int, said: bytes) -> Any:
        try:
            found = json.loads(said) if said else None
        except ValueError:
            raise Unreachable(f"what answers at {self._address} is no broker") from None
        if status >= 400:
            reason = found.get("reason") if isinstance(found, dict) else None
            words = str(reason or f"the broker answers with status {status}")
            if status == UNAUTHORIZED and self._user == GUEST:
                words += f": {GUEST} is not let in here; --user NAME logs in as somebody else"
            raise Refused(status, words)
        return found


def connect() -> Api:
    """As the options say: guest, unless there is another name."""
    address = click.get_current_context().meta[__name__]
    user = chosen_user()
    if user is None:
        return Api(address, GUEST, GUEST)
    return Api(address, user, read_password(f"Password of {user}"))


def arguments_of(settings: tuple[str, ...]) -> dict[str, Any]:
    """`x-max-length=10` of a repeated --set: JSON where it is, and text where it is not."""
    found: dict[str, Any] = {}
    for name, text in key_values(settings, "--set").items():
        try:
            found[name] = json.loads(text)
        except ValueError:
            found[name] = text
    return found
