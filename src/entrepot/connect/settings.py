"""A connector's file: what is the same for all of them, checked once, before anything runs.

A mistake is a `ConfigError`: one line that names the file and the key, and the legal key
that looks most like it. A secret is not written into the file but pointed to: wherever a
text may stand, `{env = "NAME"}` takes it from the environment and `{file = "path"}` from
the first line of a file.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from entrepot.connect.interface import ConfigError
from entrepot.core.limits import MIB

NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")
Positive = Annotated[int, Meta(ge=1)]
Natural = Annotated[int, Meta(ge=0)]

_TABLES = ("batch", "errors", "kafka", "options")

_Model = TypeVar("_Model")


@dataclass(frozen=True, slots=True)
class Batch:
    records: Annotated[int, Meta(ge=1, le=100_000)] | None = None  # None: the connector's own.
    bytes: Annotated[int, Meta(ge=1, le=64 * MIB)] = 4 * MIB  # Of a sink, about.
    wait_ms: Natural | None = None  # Of a sink: how long the first waits for others.


@dataclass(frozen=True, slots=True)
class Errors:
    dead_letters: str | None = None  # A topic; None: poison ends the run.
    patience_s: Natural = 300  # How long one failure may last.


@dataclass(frozen=True, slots=True)
class Settings:
    name: str
    connector: str
    topic: str = ""
    topics: tuple[str, ...] = ()  # Of a sink, instead.
    group: str | None = None
    start: Literal["earliest", "latest"] = "earliest"
    on_data_loss: Literal["stop", "skip"] = "stop"
    poll_ms: Positive | None = None
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    bootstrap_servers: str | None = None
    batch: Batch = field(default_factory=Batch)
    errors: Errors = field(default_factory=Errors)
    kafka: dict[str, str] = field(default_factory=dict)  # Client properties.
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def all_topics(self) -> tuple[str, ...]:
        return self.topics or (self.topic,)


def load(path: str) -> Settings:
    document = _resolve(_read_toml(path), path, "")
    settings = convert(document, Settings, path)
    if not NAME.fullmatch(settings.name):
        raise ConfigError(f"{path}: name: letters, digits, '.', '_' and '-', 200 at the most")
    if bool(settings.topic) == bool(settings.topics):
        raise ConfigError(f"{path}: topic: one topic here, or several in topics; not both")
    return settings


def convert(
    document: Mapping[str, Any], model: type[_Model], source: str, prefix: str = ""
) -> _Model:
    """The document as the dataclass; mistakes are those of `source`."""
    _check_keys(document, model, source, prefix)
    try:
        return msgspec.convert(document, model)
    except msgspec.ValidationError as error:
        problem, _, where = str(error).partition(" - at `$.")
        key = prefix + where.rstrip("`")
        choices = _choices(model, where.rstrip("`"))
        raise ConfigError(f"{source}: {key}: {problem[:1].lower()}{problem[1:]}{choices}") from None


def _read_toml(path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError(f"{path}: cannot be read: {reason}") from None


def _resolve(value: Any, path: str, key: str) -> Any:
    """With the secrets in place of what points to them."""
    if isinstance(value, list):
        return [_resolve(each, path, key) for each in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1 and key not in ("", *_TABLES):
        ((kind, name),) = value.items()
        if kind in ("env", "file") and isinstance(name, str):
            return _secret(kind, name, path, key)
    return {name: _resolve(each, path, f"{key}.{name}".lstrip(".")) for name, each in value.items()}


def _secret(kind: str, name: str, path: str, key: str) -> str:
    if kind == "env":
        if name not in os.environ:
            raise ConfigError(f"{path}: {key}: the environment has no variable {name}")
        return os.environ[name]
    try:
        return Path(name).read_text(encoding="utf-8").partition("\n")[0]
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError(f"{path}: {key}: {name} cannot be read: {reason}") from None


def _check_keys(document: Mapping[str, Any], model: Any, source: str, prefix: str) -> None:
    assert is_dataclass(model)
    hints = get_type_hints(model)
    names = [entry.name for entry in fields(model)]
    for key, value in document.items():
        if key not in names:
            near = difflib.get_close_matches(key, names, n=1, cutoff=0.6)
            hint = f'; did you mean "{prefix}{near[0]}"?' if near else f"; one of {_list(names)}"
            raise ConfigError(f'{source}: unknown key "{prefix}{key}"{hint}')
        if isinstance(hints[key], type) and is_dataclass(hints[key]):
            if not isinstance(value, Mapping):
                raise ConfigError(f"{source}: {prefix}{key}: expected a table, as in [{key}]")
            _check_keys(value, hints[key], source, f"{prefix}{key}.")
    for entry in fields(model):
        is_needed = entry.default is MISSING and entry.default_factory is MISSING
        if is_needed and entry.name not in document:
            raise ConfigError(f'{source}: "{prefix}{entry.name}" is missing')


def _choices(model: Any, where: str) -> str:
    """The legal values, where they can be listed."""
    hint: Any = model
    for name in where.split("."):
        hint = get_type_hints(hint).get(name) if is_dataclass(hint) else None
    return f"; one of {_list(get_args(hint))}" if get_origin(hint) is Literal else ""


def _list(names: Any) -> str:
    return ", ".join(map(str, names))
