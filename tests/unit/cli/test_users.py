"""Users in a data directory whose broker is not running."""

import asyncio
import contextlib
from pathlib import Path

from click.testing import CliRunner

from entrepot.broker.broker import Broker
from entrepot.broker.router.event import Destination, DestinationKind
from entrepot.cli import main
from entrepot.core.clock import SystemClock, SystemEntropy
from entrepot.gateway.rabbitmq.binding_arguments import BindingDeclaration
from entrepot.gateway.rabbitmq.exchange_arguments import PREDECLARED
from entrepot.log.disk import FileDisk


def test_users_beside_bindings_of_predeclared_exchanges(tmp_path: Path) -> None:
    """To open the directory is to fold the bindings in it, too."""

    async def bind() -> None:
        with contextlib.closing(FileDisk(str(tmp_path))) as disk:
            broker = Broker(disk, SystemClock(), SystemEntropy(), predeclared=PREDECLARED)
            await broker.open()
            await broker.create_topic("t")
            to = Destination(DestinationKind.QUEUE, "t")
            await broker.vhosts.default.bind(BindingDeclaration("amq.topic", to, "#"))
            await broker.close()

    asyncio.run(bind())
    where = ["--data-dir", str(tmp_path)]
    added = CliRunner().invoke(main, ["users", "add", "ana", "--password-stdin", *where], input="x")
    assert (added.exit_code, added.output) == (0, "added ana\n")
    assert "ana" in CliRunner().invoke(main, ["users", "list", *where]).output
