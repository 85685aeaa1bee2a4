"""A newspaper's archive: every article, author, tag and image is a fact in one log.

    newspaper ── articles ──> Delta view, one document per article, ready to be searched

The facts are normalised: an article names its author, its tags and its images by their ids.
Readers search documents, in which the names and captions themselves stand. So when an author
marries or a caption is corrected, one fact is written, and all the documents that it touches
are made anew. The log keeps everything ever published; another way to search is another
view, filled from offset 0.

The topic has one partition: who is told about an article first and its author next must not
see it the other way round. One task therefore folds the archive, and its work for a fact is
the number of documents that the fact touches, not the size of the archive. A part that an
article names and that has not come yet is left out until it comes.

    python -m examples.pipelines.feed newspaper
    entrepot pipeline run examples/pipelines/newspaper.py --live
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StatefulProcessor

from entrepot.spark.pipelines import Delta, Topic, pipeline

FACTS = Topic(
    "newspaper",
    schema="kind string, id string, name string, title string, text string,"
    " author string, tags array<string>, images array<string>",
)
ARTICLE = "title string, text string, author string, tags array<string>, images array<string>"
DOCUMENT = f"id string, {ARTICLE}, revised bigint"


class Article(NamedTuple):
    title: str | None
    text: str | None
    author: str | None
    tags: list[str]
    images: list[str]

    def parts(self) -> list[tuple[str, str]]:
        """What it names, each as (kind, id)."""
        authors = [("author", self.author)] if self.author else []
        tags = [("tag", tag) for tag in self.tags]
        return [*authors, *tags, *(("image", image) for image in self.images)]


def article_of(row: Any) -> Article:
    return Article(row.title, row.text, row.author, list(row.tags or ()), list(row.images or ()))


class Denormalising(StatefulProcessor):
    """The archive, and which articles name which part."""

    def init(self, handle: Any) -> None:
        part = "kind string, id string"
        self._articles = handle.getMapState("articles", "id string", ARTICLE)
        self._names = handle.getMapState("names", part, "name string")
        self._naming = handle.getMapState("naming", part, "articles array<string>")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        revised: dict[str, int] = {}  # By article, the offset of the fact that touched it last.
        for fact in sorted(rows, key=lambda row: row._offset):
            if fact.kind == "article":
                self._publish(fact.id, article_of(fact))
                revised[fact.id] = fact._offset
            else:
                part = (fact.kind, fact.id)
                self._names.updateValue(part, (fact.name,))
                revised |= dict.fromkeys(self._articles_naming(part), fact._offset)
        for name, offset in revised.items():
            yield self._document(name, offset)

    def _publish(self, name: str, article: Article) -> None:
        before = self._article(name)
        gone = set(before.parts() if before else ()) - set(article.parts())
        for part in gone:
            kept = [other for other in self._articles_naming(part) if other != name]
            self._naming.updateValue(part, (kept,))
        for part in article.parts():
            self._naming.updateValue(part, (sorted({*self._articles_naming(part), name}),))
        self._articles.updateValue((name,), article)

    def _article(self, name: str) -> Article | None:
        found = self._articles.getValue((name,))
        return None if found is None else Article(*found)

    def _articles_naming(self, part: tuple[str, str]) -> list[str]:
        found = self._naming.getValue(part)
        return [] if found is None else list(found[0])

    def _name(self, kind: str, name: str) -> str | None:
        found = self._names.getValue((kind, name))
        return None if found is None else found[0]

    def _document(self, name: str, revised: int) -> Row:
        article = self._article(name)
        assert article is not None, name
        tags = [self._name("tag", tag) for tag in article.tags]
        captions = [self._name("image", image) for image in article.images]
        return Row(
            id=name,
            title=article.title,
            text=article.text,
            author=self._name("author", article.author) if article.author else None,
            tags=[tag for tag in tags if tag],
            images=[caption for caption in captions if caption],
            revised=revised,
        )

    def close(self) -> None:
        """Nothing to give back."""


@pipeline(reads=FACTS, writes=Delta("articles", keys=["id"]), mode="update")
def articles(facts: DataFrame) -> DataFrame:
    """One document per article, with the words by which it is found."""
    named = facts.where("kind is not null and id is not null")
    documents = named.groupBy("_topic").transformWithState(
        Denormalising(), DOCUMENT, outputMode="update", timeMode="none"
    )
    everything = F.concat_ws(" ", "title", "text", "author", "tags", "images")
    words = F.split(F.lower(everything), r"[^\p{L}\p{N}]+")
    return documents.withColumn("words", F.array_sort(F.array_remove(F.array_distinct(words), "")))


def search(documents: DataFrame, question: str) -> DataFrame:
    """The documents in which every word of the question stands, the newest first."""
    asked = F.split(F.lower(F.lit(question)), r"[^\p{L}\p{N}]+")
    found = F.size(F.array_except(F.array_remove(asked, ""), "words")) == 0
    return documents.where(found).orderBy(F.desc("revised"))
