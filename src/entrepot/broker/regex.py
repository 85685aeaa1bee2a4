"""Matches regular expressions that peers send, with RE2, in time linear in the name's length.

Python's own matcher can take exponential time, so a peer could stop the broker with it. RE2 has
no lookahead and no back-references, which cannot be matched in linear time.
"""

from __future__ import annotations

from entrepot.core import limits


class InvalidRegex(ValueError):
    """A regular expression that RE2 does not accept, or that is too long."""


class Regex:
    def __init__(self, pattern: str) -> None:
        """Compile a regular expression. Raises InvalidRegex."""
        import re2  # Imported when first needed: a start does not wait for it.

        if len(pattern) > limits.REGEX_CHARACTERS_MAX:
            raise InvalidRegex("the regular expression is too long")
        options = re2.Options()
        options.max_mem = limits.REGEX_BYTES_MAX
        options.never_capture = True  # Nobody asks what a group matched.
        options.log_errors = False
        try:
            self._compiled = re2.compile(pattern, options)
        except UnicodeEncodeError:
            raise InvalidRegex("the regular expression is not Unicode") from None
        except re2.error as error:
            raise InvalidRegex(_reason(error)) from None

    def is_whole(self, name: str) -> bool:
        """Return whether the expression matches the whole name."""
        return self._compiled.fullmatch(_encoded(name)) is not None

    def is_within(self, name: str) -> bool:
        """Return whether the expression matches any part of the name."""
        return self._compiled.search(_encoded(name)) is not None


def _encoded(name: str) -> bytes:
    """Encode a name, because RE2 searches bytes faster than text."""
    return name.encode("utf-8", "surrogatepass")


def _reason(error: Exception) -> str:
    (reason,) = error.args
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
