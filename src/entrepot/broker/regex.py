"""Regular expressions of peers: RE2's, which take no more time than a name is long.

Any peer may send one, so Python's own matcher, which can take for ever, is out of the
question. RE2's syntax is what Kafka has for topics; what it refuses, such as looking ahead and
references back, has no such bound.
"""

from __future__ import annotations

from entrepot.core import limits


class InvalidRegex(ValueError):
    pass


class Regex:
    def __init__(self, pattern: str) -> None:
        """Raises InvalidRegex."""
        import re2  # Most brokers never need it, and none at the start.

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
        """Whether all of the name matches."""
        return self._compiled.fullmatch(_encoded(name)) is not None

    def is_within(self, name: str) -> bool:
        """Whether some of the name matches."""
        return self._compiled.search(_encoded(name)) is not None


def _encoded(name: str) -> bytes:
    """In bytes the search is quicker: nobody asks for positions in characters."""
    return name.encode("utf-8", "surrogatepass")


def _reason(error: Exception) -> str:
    (reason,) = error.args
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
