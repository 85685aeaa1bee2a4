"""Run a module of Eclipse Paho's interoperability tests against a broker, one line per test.

    python suite.py DIRECTORY MODULE HOST:PORT

The tests read what their module's main program sets; this is that, and no more.
"""

import contextlib
import importlib
import os
import sys
import unittest

TOPICS = ("TopicA", "TopicA/B", "Topic/C", "TopicA/C", "/TopicA")
FILTERS = ("TopicA/+", "+/C", "#", "/#", "/+", "+/+", "TopicA/#")
PREFIX = {"client_test": "", "client_test5": "client_test5/"}


class Lines(unittest.TextTestResult):
    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802
        super().addSuccess(test)
        self._say("PASS", test)

    def addFailure(self, test: unittest.TestCase, error: object) -> None:  # noqa: N802
        super().addFailure(test, error)
        self._say("FAIL", test, str(error[1]) or error[0].__name__)

    def addError(self, test: unittest.TestCase, error: object) -> None:  # noqa: N802
        super().addError(test, error)
        self._say("FAIL", test, repr(error[1]))

    def _say(self, word: str, test: unittest.TestCase, why: str = "") -> None:
        name = test.id().split(".")[-1]
        sys.__stdout__.write(
            f"{word} {name}{': ' if why else ''}{why.splitlines()[0] if why else ''}\n"
        )
        sys.__stdout__.flush()


def main() -> None:
    directory, name, address = sys.argv[1:]
    sys.path.insert(0, directory)
    module = importlib.import_module(name)
    host, _, port = address.rpartition(":")
    prefix = PREFIX[name]
    module.host, module.port = host, int(port)
    module.topic_prefix = prefix
    module.topics = [prefix + each for each in TOPICS]
    module.wildtopics = [prefix + each for each in FILTERS]
    module.nosubscribe_topics = ("test/nosubscribe",)
    tests = unittest.defaultTestLoader.loadTestsFromModule(module)
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        unittest.TextTestRunner(stream=sys.stderr, resultclass=Lines).run(tests)


main()
