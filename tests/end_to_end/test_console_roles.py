"""Who may do what in the console, and logins that end, in a real browser."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import admin as admin_api

from entrepot.testing import Broker, broker
from tests.end_to_end.browsing import NEEDS_CHROMIUM, WAIT_S, Browser, chromium
from tests.end_to_end.secured import process

pytestmark = [pytest.mark.slow, NEEDS_CHROMIUM]


@pytest.fixture(scope="module")
def visit() -> Iterator[Callable[..., Browser]]:
    with chromium() as started:
        yield started


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Broker]:
    """A broker that asks who its clients are. ROOT does everything, MAX may look."""
    data = tmp_path / "data"
    for name in ("root", "max"):
        arguments = ("add", name, "--data-dir", str(data), "--password-stdin")
        process("users", *arguments, stdin=f"{name}'s\n")
    settings = {
        "ports.http": 0,
        "security.authentication": "sasl",
        "security.authorization": True,
        "security.super_users": ["User:root"],
    }
    with broker(data, settings=settings) as started:
        yield started


CALLS = """
(async () => {
const {me} = await import('/console/api.js');
const calls = [
  ['PUT', '/api/queues/%2F/mine', {}], ['DELETE', '/api/queues/%2F/secret'],
  ['DELETE', '/api/queues/%2F/secret/contents'],
  ['POST', '/api/queues/%2F/secret/get', {count: 1, ackmode: 'peek', encoding: 'auto'}],
  ['POST', '/api/console/queues/%2F/secret/send-back', {}],
  ['PUT', '/api/console/topics/mine', {}], ['GET', '/api/users'],
];
return await Promise.all(calls.map(async ([method, path, body]) => (await fetch(path, {
  method, headers: {'X-CSRF-Token': me.token}, body: body && JSON.stringify(body)})).status));
})()
"""


def let_describe(secured: Broker, user: str) -> None:
    """Let a user describe the cluster: that is who monitors."""
    admin = admin_api.AdminClient(
        {
            "bootstrap.servers": secured.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "root",
            "sasl.password": "root's",
        }
    )
    kind, pattern = admin_api.ResourceType.BROKER, admin_api.ResourcePatternType.LITERAL
    operation, allow = admin_api.AclOperation.DESCRIBE, admin_api.AclPermissionType.ALLOW
    entry = admin_api.AclBinding(
        kind, "kafka-cluster", pattern, f"User:{user}", "*", operation, allow
    )
    for made in admin.create_acls([entry]).values():
        made.result(WAIT_S)


def test_roles_and_logins(secured: Broker, visit: Callable[..., Browser]) -> None:
    let_describe(secured, "max")
    page = visit(f"http://{secured.http_address}")
    page.open("queues")
    page.wait_for("Log in to entrepot")
    page.write("User", "root")
    page.write("Password", "wrong")
    page.press("Log in")
    page.wait_for("This user and password are not known here.")
    page.write("Password", "root's")
    page.press("Log in")
    page.press("Declare a queue")
    page.write("Name", "secret")
    page.press("Declare")
    page.wait_for("secret is declared")
    for address, button in (("topics", "Create a topic"), ("exchanges", "Declare an exchange")):
        page.open(address)
        page.wait_for(button)
    page.press("Log out")

    # Who monitors sees all of it, and has no button that changes anything.
    page.log_in("max", "max's")
    page.open("queues/%2F/secret")
    page.wait_for("Ready", "Your user may not read this queue")
    assert not any(map(page.has_button, ("Publish", "Purge", "Delete", "Peek", "Move")))
    for address, button in (
        *(("queues", "Declare a queue"), ("topics", "Create a topic")),
        ("exchanges", "Declare an exchange"),
    ):
        page.open(address)
        page.until("() => !document.getElementById('main').inert")
        assert not page.has_button(button)
    page.open("")
    page.wait_for("By protocol", "What just happened", "monitor")
    assert "Users and rights" not in page.text
    assert page.run(CALLS) == [403] * 7
    without_token = "fetch('/api/queues/%2F/x', {method: 'PUT'}).then((a) => a.status)"
    assert page.run(without_token) == 403  # A cookie alone changes nothing.

    # Whose password is changed has to log in again, and is where they were.
    command = "fetch('/api/users/max', {method: 'PUT', headers: {"
    command += "Authorization: 'Basic ' + btoa('root:root\\'s')}, "
    command += "body: JSON.stringify({password: 'new'})}).then((answer) => answer.status)"
    assert page.run(command) == 204
    page.press("Queues")
    page.wait_for("Your login has ended")
    page.log_in("max", "new")
    page.wait_for("secret")
