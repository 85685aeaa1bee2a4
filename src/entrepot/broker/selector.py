"""Selectors: conditions on a message's properties and headers, in the notation of JMS.

    type = 'order' AND (price BETWEEN 10 AND 20 OR region LIKE 'eu-%') AND urgent IS NOT NULL

The notation is a part of SQL-92. A name is that of a header, or one of JMS's names of properties,
such as `JMSPriority`. What a message does not have is null, and a comparison with null is neither
true nor false: three values are computed with, and a message is selected if the result is true.
Values of different kinds are not equal, and neither is greater; a selector that begins with
`convert_string_expressions:`, as ActiveMQ has it, reads texts as numbers to compare them with
numbers, for headers of protocols that have nothing but texts.

Another notation for the simplest selectors is triples, all of which must hold:

    {(company, =, "Telco"), (price, <, 100)}

There, texts are read as numbers to compare them with numbers.

A selector is compiled to functions when it is parsed. It has a limited size, so that the time it
takes for a message is limited, too. Some facts about it are kept besides: see `facts`.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

from entrepot.broker import facts
from entrepot.broker.regex import InvalidRegex, Regex
from entrepot.core import limits
from entrepot.core.errors import InvalidSelector
from entrepot.core.message import Envelope
from entrepot.core.properties import Properties

CONVERTING = "convert_string_expressions:"

# Returns the value of an expression for a message: a text, a number, a boolean, or None for null.
Expression = Callable[[Properties], Any]

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>(?:0[xX][0-9a-fA-F]{1,16}|(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?)[lLfFdD]?)
      | (?P<name>[^\W\d][\w$.]*|\$[\w$.]*)
      | (?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")
      | (?P<sign><>|<=|>=|!=|[-=<>+*/(),{}])
    )""",
    re.VERBOSE,
)
_WORDS = dict.fromkeys(
    ("AND", "OR", "NOT", "BETWEEN", "LIKE", "IN", "IS", "NULL", "ESCAPE", "TRUE", "FALSE")
)
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_EQUALITY = ("=", "<>")
_UNEQUAL = {"!=": "<>"}  # In triples.
_LIKE_MAX = limits.SELECTOR_LIKE_CHARACTERS_MAX
_INTEGER_END = 2**1_024  # A greater result is null: nobody needs it, and it takes long.
_PRIORITY = 4  # JMS's priority of a message that has none.
_PERSISTENT = {True: "PERSISTENT", False: "NON_PERSISTENT"}


class Selector:
    """Tells which messages are selected."""

    def __init__(self, text: str) -> None:
        """Compile a selector. Raises InvalidSelector, with the position of the mistake."""
        parser = _Parser(text)
        self.text = text
        self._is_true = parser.parse()
        self.cost = parser.count  # How many operands it has.
        self.facts = parser.facts_of(self._is_true)

    def __call__(self, envelope: Envelope) -> bool:
        return self._is_true(envelope.format.properties(envelope.head)) is True

    def selects(self, properties: Properties) -> bool:
        return self._is_true(properties) is True


class _Parser:
    def __init__(self, text: str) -> None:
        if len(text) > limits.SELECTOR_CHARACTERS_MAX:
            raise InvalidSelector(
                f"a selector of {len(text)} characters, and {limits.SELECTOR_CHARACTERS_MAX} "
                "are allowed"
            )
        self._text = text
        self._converts = text.startswith(CONVERTING)
        self._end = len(CONVERTING) if self._converts else 0  # Of the token before.
        self._start = self._end
        self._depth = 0
        self.count = 0
        # What is known of expressions: properties, constants, and facts about conditions.
        self._names: dict[Expression, str] = {}
        self._constants: dict[Expression, Any] = {}
        self._facts: dict[Expression, facts.Facts] = {}
        self._kind, self._token = "", ""
        self._step()

    # --- tokens

    def _step(self) -> str:
        """Go on to the next token, and return the one before."""
        passed = self._token
        rest = self._text[self._end :]
        found = _TOKEN.match(self._text, self._end)
        if found is not None:
            self._kind = str(found.lastgroup)
            self._token = found[self._kind]
            self._start, self._end = found.start(self._kind), found.end()
            if self._kind == "name" and self._token.upper() in _WORDS:
                self._kind, self._token = "word", self._token.upper()
        elif rest.strip():
            self._start = self._end + len(rest) - len(rest.lstrip())
            raise self._wrong("no part of a selector begins like this")
        else:
            self._kind, self._token, self._start = "end", "", len(self._text)
        return passed

    def _take(self, *tokens: str) -> str:
        """Go on if the next token is one of these, and return it."""
        is_one = self._kind in ("word", "sign") and self._token in tokens
        return self._step() if is_one else ""

    def _expect(self, token: str) -> None:
        if not self._take(token):
            raise self._wrong(f"expected {token}")

    def _wrong(self, reason: str) -> InvalidSelector:
        there = self._text[self._start : self._start + 20] or "the end"
        return InvalidSelector(f"at character {self._start + 1} ({there}): {reason}")

    def _deeper(self, parse: Callable[[], Expression]) -> Expression:
        self._depth += 1
        if self._depth > limits.SELECTOR_DEPTH_MAX:
            raise self._wrong("too many parentheses and signs")
        found = parse()
        self._depth -= 1
        return found

    # --- the grammar, from the weakest operator to the strongest

    def parse(self) -> Expression:
        found = self._triples() if self._take("{") else self._any_of()
        if self._kind != "end":
            raise self._wrong("expected AND, OR or the end")
        return found

    def _any_of(self) -> Expression:
        parts = [self._all_of()]
        while self._take("OR"):
            parts.append(self._all_of())
        if len(parts) == 1:
            return parts[0]
        found = _disjunction(parts)
        self._facts[found] = facts.of_any([self.facts_of(each) for each in parts])
        return found

    def _all_of(self) -> Expression:
        parts = [self._negated()]
        while self._take("AND"):
            parts.append(self._negated())
        return parts[0] if len(parts) == 1 else self._all_hold(parts)

    def _all_hold(self, parts: Sequence[Expression]) -> Expression:
        found = _conjunction(parts)
        self._facts[found] = facts.of_all([self.facts_of(each) for each in parts])
        return found

    def facts_of(self, expression: Expression) -> facts.Facts:
        return self._facts.get(expression, ())

    def _triples(self) -> Expression:
        """Read triples up to the brace that ends them."""
        self._converts = True
        parts: list[Expression] = []
        while not self._take("}"):
            if parts:
                self._expect(",")
            self._expect("(")
            if self._kind != "name":
                raise self._wrong("expected a name")
            name = self._operand()
            self._expect(",")
            sign = self._take(*_COMPARISONS, "!=")
            if not sign:
                raise self._wrong(f"expected one of {' '.join(_COMPARISONS)}")
            self._expect(",")
            if self._kind == "name":
                raise self._wrong("expected a text in quotes, a number, TRUE or FALSE")
            parts.append(self._compare(_UNEQUAL.get(sign, sign), name, self._signed(quotes='"')))
            self._expect(")")
        return self._all_hold(parts) if parts else _constant(True)

    def _compare(self, sign: str, left: Expression, right: Expression) -> Expression:
        found = _compared(sign, left, right, self._converts)
        if left in self._names and right in self._constants:
            name, value, turned = self._names[left], self._constants[right], False
        elif right in self._names and left in self._constants:
            name, value, turned = self._names[right], self._constants[left], True
        else:
            return found
        self._facts[found] = facts.of_comparison(name, sign, value, turned=turned)
        return found

    def _negated(self) -> Expression:
        if self._take("NOT"):
            return _negation(self._deeper(self._negated))
        return self._comparison()

    def _comparison(self) -> Expression:
        left = self._sum()
        sign = self._take(*_COMPARISONS)
        if sign:
            return self._compare(sign, left, self._sum())
        if self._take("IS"):
            is_not = self._take("NOT")
            self._expect("NULL")
            return _negation(_is_null(left)) if is_not else _is_null(left)
        is_not = self._take("NOT")
        word = self._take("BETWEEN", "IN", "LIKE")
        if word == "BETWEEN":
            found = self._between(left)
        elif word == "IN":
            texts = self._texts()
            found = _is_in(left, texts)
            if left in self._names:
                self._facts[found] = facts.of_list(self._names[left], texts)
        elif word == "LIKE":
            found = _is_like(left, self._pattern())
        elif is_not:
            raise self._wrong("expected BETWEEN, IN or LIKE")
        else:
            return left
        return _negation(found) if is_not else found

    def _between(self, value: Expression) -> Expression:
        least = self._sum()
        self._expect("AND")
        most = self._sum()
        return self._all_hold([self._compare(">=", value, least), self._compare("<=", value, most)])

    def _texts(self) -> dict[str, None]:
        self._expect("(")
        texts = {self._literal_text(): None}
        while self._take(","):
            texts[self._literal_text()] = None
        self._expect(")")
        return texts

    def _literal_text(self, quotes: str = "'") -> str:
        if self._kind != "text" or self._token[0] not in quotes:
            raise self._wrong("expected a text in single quotes")
        self.count += 1
        text = self._step()
        return text[1:-1].replace(2 * text[0], text[0])

    def _pattern(self) -> Regex:
        pattern = self._literal_text()
        escape = self._literal_text() if self._take("ESCAPE") else None
        if escape is not None and len(escape) != 1:
            raise self._wrong("expected one character to escape with")
        try:
            return Regex(_regex(pattern, escape))
        except InvalidRegex as error:
            raise self._wrong(str(error)) from None

    def _sum(self) -> Expression:
        return self._chain(self._product, "+", "-")

    def _product(self) -> Expression:
        return self._chain(self._signed, "*", "/")

    def _chain(self, operand: Callable[[], Expression], *signs: str) -> Expression:
        first = operand()
        others: list[tuple[str, Expression]] = []
        while sign := self._take(*signs):
            others.append((sign, operand()))
        return _computed(first, others) if others else first

    def _signed(self, quotes: str = "'") -> Expression:
        sign = self._take("+", "-")
        if not sign:
            return self._operand(quotes)
        operand = self._deeper(self._signed)
        found = _computed(_constant(0), [(sign, operand)])
        value = self._constants.get(operand)
        if value is not None and _is_number(value):
            self._constants[found] = -value if sign == "-" else value
        return found

    def _operand(self, quotes: str = "'") -> Expression:
        self.count += 1
        if self._take("("):
            found = self._deeper(self._any_of)
            self._expect(")")
            return found
        if self._kind == "name":
            name = self._step()
            found = property_of(name)
            self._names[found] = name
            return found
        return self._constant(quotes)

    def _constant(self, quotes: str) -> Expression:
        value: Any
        if self._kind == "text":
            value = self._literal_text("'" + quotes)
        elif self._kind == "number":
            if len(self._token) > limits.SELECTOR_NUMBER_CHARACTERS_MAX:
                raise self._wrong("a number with too many digits")
            value = _number(self._step())
        else:
            word = self._take("TRUE", "FALSE", "NULL")
            if not word:
                raise self._wrong("expected a name, a text, a number, TRUE, FALSE or (")
            value = {"TRUE": True, "FALSE": False, "NULL": None}[word]
        found = _constant(value)
        self._constants[found] = value
        return found


# --- operands


def _constant(value: Any) -> Expression:
    return lambda _: value


def _number(text: str) -> int | float:
    if text[:2] in ("0x", "0X"):
        return int(text.rstrip("lL"), 16)
    digits = text.rstrip("lLfFdD")
    return int(digits) if digits.isdigit() and text[-1] not in "fFdD" else float(digits)


def property_of(name: str) -> Expression:
    """Return what reads a property of JMS, or else a header."""
    read = _JMS.get(name)
    if read is not None:
        return read
    return lambda properties: simple(properties.headers.get(name))


def is_special(name: str) -> bool:
    """Return whether a name is that of a property of JMS, and not of a header."""
    return name in _JMS


def simple(value: object) -> Any:
    """Return a header's value if it can be compared: a text, a number or a boolean."""
    if isinstance(value, str | int | float):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return None


def _time_ms(properties: Properties) -> int | None:
    return None if properties.timestamp is None else properties.timestamp * 1_000


_JMS: dict[str, Expression] = {
    "JMSMessageID": lambda properties: properties.message_id,
    "JMSCorrelationID": lambda properties: properties.correlation_id,
    "JMSType": lambda properties: properties.type or properties.others.get("subject"),
    "JMSPriority": lambda properties: (
        _PRIORITY if properties.priority is None else properties.priority
    ),
    "JMSTimestamp": _time_ms,
    "JMSDeliveryMode": lambda properties: _PERSISTENT[properties.is_persistent is True],
    "JMSXUserID": lambda properties: properties.user_id,
    "JMSXGroupID": lambda properties: properties.others.get("group-id"),
}


# --- operators


def _conjunction(parts: Sequence[Expression]) -> Expression:
    def evaluate(properties: Properties) -> bool | None:
        result: bool | None = True
        for part in parts:
            value = part(properties)
            if value is False:
                return False
            if value is not True:
                result = None
        return result

    return evaluate


def _disjunction(parts: Sequence[Expression]) -> Expression:
    def evaluate(properties: Properties) -> bool | None:
        result: bool | None = False
        for part in parts:
            value = part(properties)
            if value is True:
                return True
            if value is not False:
                result = None
        return result

    return evaluate


def _negation(part: Expression) -> Expression:
    def evaluate(properties: Properties) -> bool | None:
        value = part(properties)
        return (not value) if isinstance(value, bool) else None

    return evaluate


def _compared(sign: str, left: Expression, right: Expression, converts: bool) -> Expression:
    compare, is_equality = _COMPARISONS[sign], sign in _EQUALITY

    def evaluate(properties: Properties) -> bool | None:
        one, other = left(properties), right(properties)
        if one is None or other is None:
            return None
        if converts and isinstance(one, str) is not isinstance(other, str):
            one, other = as_number(one), as_number(other)
        kind = _kind(one)
        return kind is _kind(other) and (is_equality or kind is float) and compare(one, other)

    return evaluate


def _kind(value: object) -> type:
    if isinstance(value, str):
        return str
    return bool if isinstance(value, bool) else float


def _is_number(value: object) -> bool:
    return value is not None and _kind(value) is float


def as_number(value: Any) -> Any:
    """Return a text as a number, or a boolean, if it is one."""
    if not isinstance(value, str):
        return value
    if value in ("true", "false"):
        return value == "true"
    try:
        return float(value) if len(value) <= limits.SELECTOR_NUMBER_CHARACTERS_MAX else value
    except ValueError:
        return value


def _is_null(part: Expression) -> Expression:
    return lambda properties: part(properties) is None


def _is_in(part: Expression, texts: dict[str, None]) -> Expression:
    def evaluate(properties: Properties) -> bool | None:
        value = part(properties)
        return None if value is None else isinstance(value, str) and value in texts

    return evaluate


def _is_like(part: Expression, pattern: Regex) -> Expression:
    def evaluate(properties: Properties) -> bool | None:
        value = part(properties)
        if value is None or (isinstance(value, str) and len(value) > _LIKE_MAX):
            return None
        return isinstance(value, str) and pattern.is_whole(value)

    return evaluate


def _regex(pattern: str, escape: str | None) -> str:
    """Return the regular expression for a pattern with `%` and `_`."""
    parts = ["(?s)"]
    characters = iter(pattern)
    for each in characters:
        if each == escape:
            parts.append(_literal(next(characters, each)))
        elif each == "%":
            parts.append(".*")
        else:
            parts.append("." if each == "_" else _literal(each))
    return "".join(parts)


def _literal(character: str) -> str:
    return re.escape(character) if character.isascii() else character


def _computed(first: Expression, others: Sequence[tuple[str, Expression]]) -> Expression:
    def evaluate(properties: Properties) -> Any:
        value = first(properties)
        if not _is_number(value):
            return None
        for sign, operand in others:
            other = operand(properties)
            if not _is_number(other):
                return None
            try:
                value = _ARITHMETIC[sign](value, other)
            except ArithmeticError:
                return None
            if abs(value) > _INTEGER_END:
                return None
        return value

    return evaluate


_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
