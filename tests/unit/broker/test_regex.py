import re
from random import Random

import pytest

from entrepot.broker.regex import InvalidRegex, Regex
from entrepot.core import limits

PATTERNS = (
    "", "a", "a.*", "^topic-[0-9]+$", "(a|b)*c", "a{2,3}", "a{2}", "a{1,}b", "[^x]+", "(?:ab)+c?",
    r"\d+\.\w*", "a|", "[a-]b", "[]a]b", "x[-a]", "a+?b", "(^a.*)|(^b$)", "^a|b$", r"a\.b|\$",
    "((a)|b{0,2})*", r"[\d_]x", "(a*)*b", "()a", "a{0}b", "x^y", "a$b", r"\bt", "(?i)A.X", "^$",
)  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_means_what_python_means_by_it(pattern: str) -> None:
    ours, theirs, random = Regex(pattern), re.compile(pattern), Random(1)
    for _ in range(1_000):
        name = "".join(random.choices("abcx019.-_]$t", k=random.randrange(7)))
        assert ours.is_whole(name) == bool(theirs.fullmatch(name)), name
        assert ours.is_within(name) == bool(theirs.search(name)), name


@pytest.mark.parametrize(
    "pattern",
    [
        "(", "a)", "*a", "a**", "[a", "[", "[]", "a{3,1}", "(?=a)", "(?!a)", "(?<=a)", r"(a)\1",
        "\\", "a|*", "[z-a]", "a{9999}", "((((a{50}){50}){50}){50})", r"\pL" * 300, "\ud800",
        "a" * (limits.REGEX_CHARACTERS_MAX + 1),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(pattern: str) -> None:
    with pytest.raises(InvalidRegex):
        Regex(pattern)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+b",
        "(a|a)*b",
        "a*a*a*a*a*a*a*a*b",
        "(((){10}){10}){10}",
        "(a|b)*a" + "(a|b)" * 80,
    ],
)
def test_takes_no_time_whatever_it_is(pattern: str) -> None:
    """Python's own needs longer than the sun for some of these."""
    regex, random = Regex(pattern), Random(1)
    for _ in range(20):
        regex.is_whole("".join(random.choices("ab", k=249)))
        assert not regex.is_whole("a" * 248 + "c")


def test_characters_are_unicodes() -> None:
    assert Regex("gr.n").is_whole("grün")
    assert not Regex("gr..n").is_whole("grün")
    assert Regex(".").is_whole("\ud800")  # Half of one; nothing fails.
