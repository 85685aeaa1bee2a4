"""The parameters of a request, by name: each is read with the type that it must have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from entrepot.wire.sqs import limits as sqs_limits
from entrepot.wire.sqs.errors import SqsError, invalid, malformed, missing

_ENTRY_ID = re.compile(rf"[A-Za-z0-9_-]{{1,{sqs_limits.ENTRY_ID_MAX}}}")
_NUMBER = re.compile(r"-?[0-9]{1,18}")


class Parameters:
    def __init__(self, values: Mapping[str, Any], *, are_texts: bool = False) -> None:
        """`are_texts` means: numbers come in digits, as everything does in the older protocol."""
        self.values = values
        self._are_texts = are_texts

    def text(self, name: str) -> str:
        """Return a text that must be there and not empty."""
        found = self.text_or_none(name)
        if not found:
            raise missing(name)
        return found

    def text_or_none(self, name: str) -> str | None:
        found = self.values.get(name)
        if found is not None and not isinstance(found, str):
            raise malformed(f"{name} is not a text")
        return found

    def number(self, name: str, low: int, high: int) -> int | None:
        """Return a number within these bounds; None if it is not given."""
        found = self.values.get(name)
        if found is None:
            return None
        if self._are_texts and isinstance(found, str) and _NUMBER.fullmatch(found):
            found = int(found)
        if type(found) is not int:
            raise malformed(f"{name} is not an integer")
        if not low <= found <= high:
            raise invalid(name, found, f"Must be between {low} and {high}, if provided.")
        return found

    def texts(self, name: str) -> list[str]:
        found = self.values.get(name)
        if found is None:
            return []
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            raise malformed(f"{name} is not a list of texts")
        return found

    def table(self, name: str) -> Mapping[str, Any]:
        found = self.values.get(name)
        if found is None:
            return {}
        if not isinstance(found, dict):
            raise malformed(f"{name} is not a map")
        return found

    def text_table(self, name: str) -> dict[str, str]:
        found = self.table(name)
        if not all(isinstance(value, str) for value in found.values()):
            raise malformed(f"{name} is not a map of texts")
        return dict(found)

    def entries(self, name: str = "Entries") -> list[tuple[str, Parameters]]:
        """Return the entries of a batch with their ids. Raises SqsError for a wrong batch."""
        found = self.values.get(name)
        if found is None or (self._are_texts and found == ""):
            found = []
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise malformed("Entries is not a list of structures")
        if not found:
            raise SqsError(
                "EmptyBatchRequest", "There should be at least one entry in the request."
            )
        most = sqs_limits.BATCH_ENTRIES_MAX
        if len(found) > most:
            text = f"Maximum number of entries per request are {most}. You have sent {len(found)}."
            raise SqsError("TooManyEntriesInBatchRequest", text)
        entries = [Parameters(each, are_texts=self._are_texts) for each in found]
        ids = [each.text("Id") for each in entries]
        for each in ids:
            if not _ENTRY_ID.fullmatch(each):
                text = "A batch entry id can only contain alphanumeric characters, hyphens and "
                text += f"underscores. It can be at most {sqs_limits.ENTRY_ID_MAX} letters long."
                raise SqsError("InvalidBatchEntryId", text)
        for each in ids:
            if ids.count(each) > 1:
                raise SqsError("BatchEntryIdsNotDistinct", f"Id {each} repeated.")
        return [*zip(ids, entries, strict=True)]
