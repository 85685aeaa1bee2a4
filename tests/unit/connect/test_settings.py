"""One line for each mistake, with the file, the key, and what was meant."""

from pathlib import Path
from typing import Any

import pytest

from entrepot.connect.interface import ConfigError
from entrepot.connect.registry import CONNECTORS, find, need
from entrepot.connect.settings import Settings, load

GOOD = 'name = "n"\nconnector = "file-sink"\ntopic = "t"\n'
ROOT = Path(__file__).parents[3]


def read(tmp_path: Path, text: str) -> Settings:
    path = tmp_path / "c.toml"
    path.write_text(text)
    return load(str(path))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name = ", "not TOML"),
        ('connector = "file-sink"\ntopic = "t"\n', '"name" is missing'),
        (GOOD + "topc = 1\n", 'unknown key "topc"; did you mean "topic"?'),
        (GOOD + "frobnicate = 1\n", 'unknown key "frobnicate"; one of name, connector'),
        (GOOD + "[errors]\ndead_leters = 'x'\n", 'did you mean "errors.dead_letters"?'),
        (GOOD + "errors = 3\n", "errors: expected a table, as in [errors]"),
        (GOOD + "[batch]\nrecords = 0\n", "batch.records: expected `int` >= 1"),
        (GOOD + 'start = "now"\n', "start: invalid enum value 'now'; one of earliest, latest"),
        (GOOD + 'topics = ["a"]\n', "topic: one topic here, or several in topics; not both"),
        (GOOD.replace('"n"', '"a b"'), "name: letters, digits"),
        (GOOD + "[options]\npath = {env = 'NO_SUCH'}\n", "options.path: the environment has no"),
        (GOOD + "[options]\npath = {file = '/no/such'}\n", "options.path: /no/such cannot be read"),
    ],
)
def test_mistakes(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path}/c.toml: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match=r"no-such\.toml: cannot be read: No such file"):
        load("no-such.toml")


def test_secrets_come_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("from a file\n")
    monkeypatch.setenv("SECRET", "from the environment")
    settings = read(
        tmp_path,
        GOOD
        + f"[options]\na = {{env = 'SECRET'}}\nb = {{file = '{tmp_path}/secret'}}\n"
        + "[kafka]\n'sasl.password' = {env = 'SECRET'}\n",
    )
    assert settings.options == {"a": "from the environment", "b": "from a file"}
    assert settings.kafka == {"sasl.password": "from the environment"}


def test_a_table_of_options_is_not_a_secret(tmp_path: Path) -> None:
    assert read(tmp_path, GOOD + "[options]\nfile = 'x'\n").options == {"file": "x"}


@pytest.mark.parametrize(
    ("connector", "options", "said"),
    [
        ("file-snk", {}, 'there is no "file-snk"; did you mean "file-sink"?'),
        ("file-sink", {"path": "x", "fomat": "csv"}, 'did you mean "options.format"?'),
        ("file-sink", {}, '"options.path" is missing'),
        ("file-sink", {"path": 3}, "options.path: expected `str`, got `int`"),
        ("store-sink", {"path": "x", "url": "s3://b"}, "options.path: a directory, or a bucket"),
        ("store-sink", {"url": "gs://b"}, "options.url: as in s3://bucket/prefix"),
        ("store-sink", {"path": "x", "format": "csv"}, "options.columns: as in"),
        ("http-sink", {"url": "ftp://x"}, "options.url: as in https://host/path"),
        ("function-sink", {"function": "print"}, "options.function: as in module:name"),
        ("sqlite-source", {"path": "x", "incrementing": "id"}, "options.table: the table's name"),
        ("sqlite-changes", {"path": "x", "tables": []}, "options.tables: the names"),
        ("no_such_module:X", {}, "No module named"),
        ("json:loads", {}, "neither a Source nor a Sink"),
        ("json:no", {}, "json has no no"),
    ],
)
def test_mistakes_in_options(connector: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        find(Settings("n", connector, topic="t", options=options), "c.toml")
    assert said in str(caught.value)


def test_a_source_has_one_topic() -> None:
    with pytest.raises(ConfigError, match="topics: a source writes to one topic"):
        find(Settings("n", "file-source", topics=("a",), options={"path": "x"}), "c.toml")


def test_a_missing_library_comes_with_the_remedy() -> None:
    with pytest.raises(ConfigError, match=r"needs nothing: .*pip install -e '\.\[connect\]'"):
        need("no_such_library", "nothing", "x")


@pytest.mark.parametrize("name", CONNECTORS)
def test_every_connector_and_option_is_documented(name: str) -> None:
    from dataclasses import fields
    from importlib import import_module

    module, class_name = CONNECTORS[name]
    made = getattr(import_module(f"entrepot.connect.{module}"), class_name)
    page = (ROOT / "docs" / "guides" / "connect.md").read_text("utf-8")
    wanted = [name, *(field.name for field in fields(made.Options))]
    assert [each for each in wanted if f"`{each}`" not in page] == []


def test_every_setting_is_documented() -> None:
    from dataclasses import fields

    from entrepot.connect.settings import Batch, Errors

    page = (ROOT / "docs" / "guides" / "connect.md").read_text("utf-8")
    names = [each.name for each in fields(Settings)]
    names += [f"batch.{each.name}" for each in fields(Batch)]
    names += [f"errors.{each.name}" for each in fields(Errors)]
    tables = ("batch", "errors")
    assert [n for n in names if n not in tables and f"`{n}`" not in page] == []
