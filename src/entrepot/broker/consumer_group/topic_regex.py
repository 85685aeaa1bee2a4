"""Which topics a regular expression names: matched in linear time, whatever it is.

Any member may send one, so Python's own matcher, which can take for ever, is out of the
question. As in RE2, the expression becomes an automaton that is in many states at once,
and each combination of states is worked out once. The whole name must match.

    x  .  \\.  \\d \\w \\s  [a-z_] [^a-z]   characters; ^ and $ at the ends change nothing
    ab  a|b  (a)  (?:a)                   one after the other, one or the other, together
    a*  a+  a?  a{2}  a{2,}  a{2,5}       again; a ? after them changes nothing here
"""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence

from entrepot.core import limits

_WORD = string.ascii_letters + string.digits + "_"
_CLASSES = {"d": string.digits, "w": _WORD, "s": string.whitespace}
_SPECIAL = "*+?{|)"
_DEPTH_MAX = 50  # Of groups in groups.

_Chars = Callable[[str], bool]
_Fragment = Callable[[int], int]  # Adds its states before one; returns the first of them.


class InvalidRegex(ValueError):
    pass


class _States(dict[str, "_States"]):
    """A combination of states: by the next character, the combination that follows.

    What follows is worked out when it is first asked for, so a name is matched by looking up
    its characters one after the other.
    """

    __slots__ = ("_regex", "is_end", "states")

    def __init__(self, regex: TopicRegex, states: tuple[int, ...]) -> None:
        self._regex = regex
        self.states = states
        self.is_end = 0 in states

    def __missing__(self, char: str) -> _States:
        return self._regex.follow(self, char)


class TopicRegex:
    def __init__(self, pattern: str) -> None:
        """Raises InvalidRegex."""
        self._steps: list[tuple[_Chars, int] | None] = [None]  # A character, then a state.
        self._splits: list[Sequence[int]] = [()]  # Or other states at once. 0 is the end.
        self._first = self._closure([_Parser(pattern, self).fragment(0)])
        self._known: dict[tuple[int, ...], _States] = {}
        self._count = 0  # Of steps that are remembered.
        self._start = self._found(self._first)

    def matches(self, name: str) -> bool:
        found = self._start
        for char in name:
            found = found[char]
        return found.is_end

    def follow(self, found: _States, char: str) -> _States:
        """Work out what follows, and remember it."""
        steps = [step for state in found.states if (step := self._steps[state]) and step[0](char)]
        if self._count >= limits.TOPIC_REGEX_CACHED_MAX:
            self._forget()
        self._count += 1
        following = found[char] = self._found(self._closure([state for _, state in steps]))
        return following

    def _found(self, states: tuple[int, ...]) -> _States:
        if states not in self._known:
            self._known[states] = _States(self, states)
        return self._known[states]

    def _forget(self) -> None:
        for each in self._known.values():
            each.clear()  # They refer to each other.
        self._known.clear()
        self._count = 0
        self._start = self._found(self._first)

    def _closure(self, states: list[int]) -> tuple[int, ...]:
        found = dict.fromkeys(states)
        while states:
            for state in self._splits[states.pop()]:
                if state not in found:
                    found[state] = None
                    states.append(state)
        return tuple(sorted(found))

    # Building.

    def step(self, chars: _Chars, following: int) -> int:
        return self._add((chars, following), ())

    def split(self, states: Sequence[int]) -> int:
        return self._add(None, states)

    def loop(self, body: _Fragment, following: int) -> int:
        state = self._add(None, ())
        self._splits[state] = (body(state), following)
        return state

    def _add(self, step: tuple[_Chars, int] | None, splits: Sequence[int]) -> int:
        if len(self._steps) > limits.TOPIC_REGEX_STATES_MAX:
            raise InvalidRegex("the regular expression is too large")
        self._steps.append(step)
        self._splits.append(splits)
        return len(self._steps) - 1


class _Parser:
    def __init__(self, pattern: str, to: TopicRegex) -> None:
        if len(pattern) > limits.TOPIC_REGEX_SIZE_MAX:
            raise InvalidRegex("the regular expression is too long")
        self._to = to
        self._text = pattern
        self._position = self._depth = 0
        self.fragment = self._either()
        if self._position < len(self._text):
            raise InvalidRegex(f"nothing opens the ) at {self._position}")

    def _peek(self) -> str:
        return self._text[self._position : self._position + 1]

    def _next(self) -> str:
        char = self._peek()
        if not char:
            raise InvalidRegex("the regular expression ends in the middle")
        self._position += 1
        return char

    def _has(self, text: str) -> bool:
        found = self._text.startswith(text, self._position)
        self._position += len(text) * found
        return found

    def _either(self) -> _Fragment:
        choices = [self._row()]
        while self._has("|"):
            choices.append(self._row())
        if len(choices) == 1:
            return choices[0]
        return lambda following: self._to.split([choice(following) for choice in choices])

    def _row(self) -> _Fragment:
        items: list[_Fragment] = []
        self._has("^")
        while self._peek() not in ("", "|", ")"):
            if self._has("$"):
                if self._peek() not in ("", "|", ")"):
                    raise InvalidRegex("$ in the middle")
                break
            items.append(self._repeated(self._item()))

        def fragment(following: int) -> int:
            for item in reversed(items):
                following = item(following)
            return following

        return fragment

    def _repeated(self, item: _Fragment) -> _Fragment:
        low, high = self._bounds()
        if (low, high) == (1, 1):
            return item

        def fragment(end: int) -> int:
            following = self._to.loop(item, end) if high is None else end
            for _ in range(0 if high is None else high - low):
                following = self._to.split([item(following), end])
            for _ in range(low):
                before = item(following)
                if before == following:
                    break  # An empty group, however often.
                following = before
            return following

        return fragment

    def _bounds(self) -> tuple[int, int | None]:
        found: tuple[int, int | None] = (1, 1)
        for text, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._has(text):
                found = bounds
                break
        else:
            if not self._has("{"):
                return found
            body, closed, _ = self._text[self._position :].partition("}")
            low, comma, high = body.partition(",")
            if not closed or not low.isdecimal() or not (high.isdecimal() or not high):
                raise InvalidRegex(f"no numbers between {{ and }} at {self._position}")
            self._position += len(body) + 1
            found = int(low), (int(high) if high else None) if comma else int(low)
            if found[1] is not None and found[1] < found[0]:
                raise InvalidRegex(f"{{{body}}} goes backwards")
        self._has("?")
        if self._peek() and self._peek() in "*+?{":
            raise InvalidRegex(f"nothing to repeat at {self._position}")
        return found

    def _item(self) -> _Fragment:
        if self._has("("):
            return self._group()
        if self._peek() in _SPECIAL:
            raise InvalidRegex(f"nothing to repeat at {self._position}")
        chars = self._bracket() if self._has("[") else self._char()
        return lambda following: self._to.step(chars, following)

    def _group(self) -> _Fragment:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise InvalidRegex("too many groups in each other")
        if self._has("?") and not self._has(":"):
            raise InvalidRegex("only (?: of the groups that begin with (?")
        inner = self._either()
        if not self._has(")"):
            raise InvalidRegex("a ( is not closed")
        self._depth -= 1
        return inner

    def _char(self) -> _Chars:
        char = self._next()
        if char == ".":
            return lambda found: True
        if char == "^":
            raise InvalidRegex("^ in the middle")
        wanted = self._escaped() if char == "\\" else char
        return lambda found: found in wanted

    def _escaped(self) -> str:
        """What may stand there: one character or a class of them."""
        char = self._next()
        if char in _CLASSES:
            return _CLASSES[char]
        if char.isalnum():
            raise InvalidRegex(f"\\{char} is not supported")
        return char

    def _bracket(self) -> _Chars:
        is_negated = self._has("^")
        wanted = ""
        while not wanted or not self._has("]"):
            low = self._next()
            if low == "\\":
                wanted += self._escaped()
            elif self._peek() == "-" and self._text[self._position + 1 : self._position + 2] != "]":
                self._next()
                high = self._next()
                if high < low or high == "\\" or ord(high) - ord(low) > 1_000:
                    raise InvalidRegex(f"{low}-{high} is not a range")
                wanted += "".join(map(chr, range(ord(low), ord(high) + 1)))
            else:
                wanted += low
        return lambda found: (found in wanted) != is_negated
