"""Databases that the connectors are tried on: SQLite always, servers where one says so.

    ENTREPOT_POSTGRESQL=host:port:user:password:database
    ENTREPOT_MYSQL=host:port:user:password:database

name empty databases; compat/connect/run.sh starts the servers.
"""

import contextlib
import os
import sqlite3
import time
from pathlib import Path
from typing import Any, Protocol

from entrepot.connect.sqlite import BUSY_S


class Trial(Protocol):
    """One database: how connectors reach it, and how a test does."""

    name: str  # As in the connectors' names.

    @property
    def options(self) -> dict[str, Any]: ...

    def execute(self, statement: str) -> list[tuple[Any, ...]]: ...

    def disturb(self) -> None:
        """What makes everybody else fail for a moment."""

    def close(self) -> None: ...


class SqliteTrial:
    name = "sqlite"

    def __init__(self, directory: Path) -> None:
        self._path = directory / "trial.db"
        self._connection = sqlite3.connect(self._path, timeout=30, isolation_level=None)

    @property
    def options(self) -> dict[str, Any]:
        return {"path": str(self._path)}

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        return list(self._connection.execute(statement).fetchall())

    def disturb(self) -> None:
        """Nobody gets a lock for as long as anybody waits for one."""
        self._connection.execute("BEGIN EXCLUSIVE")
        time.sleep(BUSY_S + 0.5)
        self._connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()


class ServerTrial:
    """Its tables are gone when it is closed, so that the next test finds none."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        host, port, user, password, database = address.split(":")
        self.options: dict[str, Any] = {
            "host": host,
            "port": int(port),
            "user": user,
            "password": password,
            "database": database,
        }
        connect: Any
        if name == "postgresql":
            import psycopg

            connect, known_as = psycopg.connect, {"dbname": database}
        else:
            import pymysql

            connect, known_as = pymysql.connect, {"database": database}
        self._connection = connect(
            host=host, port=int(port), user=user, password=password, autocommit=True, **known_as
        )

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    def disturb(self) -> None:
        """All other connections are cut."""
        if self.name == "postgresql":
            self.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )
            return
        others = self.execute(
            "SELECT id FROM information_schema.processlist "
            "WHERE id <> connection_id() AND user <> 'system user'"
        )
        for (number,) in others:
            with contextlib.suppress(Exception):  # It may have ended by itself.
                self.execute(f"KILL {number}")

    def close(self) -> None:
        schema = "current_schema()" if self.name == "postgresql" else "database()"
        tables = self.execute(
            f"SELECT table_name FROM information_schema.tables WHERE table_schema = {schema}"
        )
        for (table,) in tables:
            cascade = " CASCADE" if self.name == "postgresql" else ""
            self.execute(f"DROP TABLE {table}{cascade}")
        self._connection.close()


def trials() -> list[str]:
    servers = [name for name in ("postgresql", "mysql") if _address(name)]
    return ["sqlite", *servers]


def open_trial(name: str, directory: Path) -> Trial:
    return SqliteTrial(directory) if name == "sqlite" else ServerTrial(name, _address(name))


def _address(name: str) -> str:
    return os.environ.get(f"ENTREPOT_{name.upper()}", "")
