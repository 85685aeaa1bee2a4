"""The newspaper's archive: documents follow the facts they are made of."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from entrepot.testing import broker
from examples.pipelines import newspaper
from examples.pipelines.newspaper import FACTS, articles, search
from tests.spark.pipelines.ready import live, send

COLUMNS = f"{FACTS.schema}, _topic string, _offset bigint"


def author(name: str, id_: str = "a1") -> dict[str, Any]:
    return {"kind": "author", "id": id_, "name": name}


def tag(name: str, id_: str) -> dict[str, Any]:
    return {"kind": "tag", "id": id_, "name": name}


def image(caption: str, id_: str) -> dict[str, Any]:
    return {"kind": "image", "id": id_, "name": caption}


def article(id_: str, title: str, tags: list[str], images: list[str] = []) -> dict[str, Any]:  # noqa: B006
    said = {"author": "a1", "tags": tags, "images": images}
    return {"kind": "article", "id": id_, "title": title, "text": "Text.", **said}


def documents(spark: Any, facts: list[dict[str, Any]]) -> Any:
    rows = [fact | {"_topic": "newspaper", "_offset": n} for n, fact in enumerate(facts)]
    return articles(spark.createDataFrame(rows[::-1], COLUMNS)).cache()


STORY = [
    author("Ada Byron"),
    tag("Weather", "t1"),
    tag("Sport", "t2"),
    image("Rain over Ulm", "i1"),
    article("1", "It rains", ["t1"], ["i1"]),
    article("2", "It rains on Sunday's match", ["t1", "t2"]),
    author("Ada Lovelace"),
]


def test_a_document_has_the_names_of_its_parts_as_they_are_now(spark: Any) -> None:
    found = {row.id: row for row in documents(spark, STORY).collect()}
    assert found["1"].author == found["2"].author == "Ada Lovelace"
    assert (found["1"].tags, found["1"].images) == (["Weather"], ["Rain over Ulm"])
    assert (found["2"].tags, found["2"].images) == (["Weather", "Sport"], [])
    assert found["1"].revised == 6, "the author's new name revised it"


def test_a_part_that_comes_late_or_is_taken_out(spark: Any) -> None:
    facts = [
        article("1", "It rains", ["t1", "t9"]),
        article("1", "It rains no more", ["t9"]),
        tag("Sun", "t9"),
        tag("Weather", "t1"),
    ]
    (row,) = documents(spark, facts).collect()
    assert (row.title, row.author, row.tags) == ("It rains no more", None, ["Sun"])
    assert row.revised == 2, "a tag that it no longer has does not touch it"


def test_a_search_finds_words_of_every_part(spark: Any) -> None:
    view = documents(spark, STORY)

    def ids(question: str) -> list[str]:
        return [row.id for row in search(view, question).collect()]

    assert sorted(ids("rains")) == ["1", "2"]
    assert ids("lovelace, SPORT!") == ["2"]
    assert ids("ulm weather") == ["1"]
    assert ids("byron") == []
    assert sorted(ids("")) == ["1", "2"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_live_documents_are_made_anew_when_a_part_changes(spark: Any, tmp_path: Path) -> None:
    """Between batches the archive is Spark's to keep."""
    with broker() as server:
        send(server, "newspaper", STORY[:-1], "id")
        with live(spark, newspaper, tmp_path, server, "articles") as running:
            before = {row.id: row.author for row in running.view("articles")}
            assert before == {"1": "Ada Byron", "2": "Ada Byron"}
            send(server, "newspaper", STORY[-1:], "id")
            running.drain()
            view = running.runner.view("articles")
            assert sorted(row.id for row in search(view, "lovelace").collect()) == ["1", "2"]
            assert search(view, "byron").count() == 0
