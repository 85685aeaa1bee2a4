"""Connectors by their names in a file. What one needs is imported when it is asked for."""

import difflib
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from entrepot.connect.interface import ConfigError, Sink, Source
from entrepot.connect.settings import Settings, convert

# Name, module and class.
CONNECTORS = {
    "file-source": ("file_source", "FileSource"),
    "file-sink": ("file_sink", "FileSink"),
    "sqlite-source": ("database_sources", "SqliteSource"),
    "sqlite-changes": ("database_sources", "SqliteChanges"),
    "sqlite-sink": ("database_sinks", "SqliteSink"),
    "postgresql-source": ("database_sources", "PostgresqlSource"),
    "postgresql-changes": ("database_sources", "PostgresqlChanges"),
    "postgresql-sink": ("database_sinks", "PostgresqlSink"),
    "mysql-source": ("database_sources", "MysqlSource"),
    "mysql-changes": ("database_sources", "MysqlChanges"),
    "mysql-sink": ("database_sinks", "MysqlSink"),
    "store-source": ("store_source", "StoreSource"),
    "store-sink": ("store_sink", "StoreSink"),
    "http-source": ("http_source", "HttpSource"),
    "http-sink": ("http_sink", "HttpSink"),
    "amqp-source": ("amqp_source", "AmqpSource"),
    "amqp-sink": ("amqp_sink", "AmqpSink"),
    "function-source": ("functions", "FunctionSource"),
    "function-sink": ("functions", "FunctionSink"),
}

Connector = type[Source] | type[Sink]


def find(settings: Settings, source: str) -> tuple[Connector, Any]:
    """The class, and its options as it wants them."""
    found = _class_of(settings.connector, source)
    if issubclass(found, Source) and settings.topics:
        raise ConfigError(f"{source}: topics: a source writes to one topic: topic")
    if found.Options is None:
        return found, settings.options
    return found, options_of(found.Options, settings.options, source)


def options_of(model: type[Any], options: Mapping[str, Any], source: str) -> Any:
    made = convert(options, model, source, "options.")
    problem = getattr(made, "problem", None)
    text = problem() if callable(problem) else None
    if text is not None:
        raise ConfigError(f"{source}: options.{text}")
    return made


def _class_of(name: str, source: str) -> Connector:
    if ":" in name:
        found = load_name(name, f"{source}: connector")
        if not (isinstance(found, type) and issubclass(found, Source | Sink)):
            raise ConfigError(f"{source}: connector: {name} is neither a Source nor a Sink")
        return found
    if name not in CONNECTORS:
        near = difflib.get_close_matches(name, CONNECTORS, n=1)
        hint = f'; did you mean "{near[0]}"?' if near else f"; one of {', '.join(CONNECTORS)}"
        raise ConfigError(f'{source}: connector: there is no "{name}"{hint}')
    module, class_name = CONNECTORS[name]
    made: Connector = getattr(import_module(f"entrepot.connect.{module}"), class_name)
    return made


def load_name(name: str, about: str) -> Any:
    """`module:name`, of the installed packages or of the current directory."""
    module, _, attribute = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return getattr(import_module(module), attribute)
    except ImportError as error:
        raise ConfigError(f"{about}: {name}: {error}") from None
    except AttributeError:
        raise ConfigError(f"{about}: {name}: {module} has no {attribute}") from None


def need(module: str, package: str, connector: str) -> Any:
    """A library of the extra, or the remedy."""
    try:
        return import_module(module)
    except ImportError:
        remedy = "in a checkout of entrepot, .venv/bin/pip install -e '.[connect]'"
        raise ConfigError(f"{connector} needs {package}: {remedy}") from None
