import re
from random import Random

import pytest

from entrepot.broker.consumer_group.topic_regex import InvalidRegex, TopicRegex
from entrepot.core import limits

PATTERNS = (
    "", "a", "a.*", "^topic-[0-9]+$", "(a|b)*c", "a{2,3}", "a{2}", "a{1,}b", "[^x]+", "(?:ab)+c?",
    r"\d+\.\w*", "a|", "[a-]b", "[]a]b", "x[-a]", "a+?b", "(^a.*)|(^b$)", "^a|b$", r"a\.b|\$",
    "((a)|b{0,2})*", r"[\d_]x", "(a*)*b", "()a", "a{0}b",
)  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_means_what_python_means_by_it(pattern: str) -> None:
    ours, theirs, random = TopicRegex(pattern), re.compile(pattern), Random(1)
    for _ in range(1_000):
        name = "".join(random.choices("abcx019.-_]$t", k=random.randrange(7)))
        assert ours.matches(name) == bool(theirs.fullmatch(name)), name


@pytest.mark.parametrize(
    "pattern",
    [
        "(", "a)", "*a", "a**", "[a", "[", "[]", "a{3,1}", "a{", "a{x}", "(?=a)", "(?i)a", r"\1",
        r"\b", "\\", "x^y", "a$b", "a|*", "[z-a]", "(" * 60 + ")" * 60, "a{9999}",
        "((((a{50}){50}){50}){50})", "a" * (limits.TOPIC_REGEX_SIZE_MAX + 1),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(pattern: str) -> None:
    with pytest.raises(InvalidRegex):
        TopicRegex(pattern)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+b",
        "(a|a)*b",
        "a*a*a*a*a*a*a*a*b",
        "(((){1000}){1000}){1000}",
        "(a|b)*a" + "(a|b)" * 80,
    ],
)
def test_takes_no_time_whatever_it_is(pattern: str) -> None:
    """Python's own needs longer than the sun for some of these."""
    regex, random = TopicRegex(pattern), Random(1)
    for _ in range(20):
        regex.matches("".join(random.choices("ab", k=249)))
        assert not regex.matches("a" * 248 + "c")
