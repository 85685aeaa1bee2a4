"""A page of the documentation as a program: its blocks, and what runs them.

What a fenced block is follows from its language:

    python    runs in one Python that lives as long as the page
    sh        runs in one shell that lives as long as the page
    none      with lines that begin with `$ `: commands, each with what it prints;
              without: what the block before it prints
    text      is a picture, for readers only
    others    are data, for the file that a comment before them names

A comment before a block, which readers do not see, may say

    <!-- file: NAME -->          the block is written to this file, not run
    <!-- excerpt: PATH -->       the block stands in this file of the repository, word by word
    <!-- typed: WORD WORD -->    what is typed while it runs, one word a line
    <!-- not run: REASON -->     why nobody here can run it

A command of a shell with a comment about Ctrl-C runs until what the page shows has come,
and is then interrupted. A broker that a page starts goes on until the page ends.

A page is written for the ports that a broker has by default. It is run with others, which
are free, so that pages can run beside each other and beside a broker of yours. What is shown
is compared with standard output alone.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
STEP_S = 0.02
BLOCK_S_MAX = 600.0  # On Spark, and on a machine with much else to do.

_BLOCK = re.compile(
    r"(?:^<!-- (?P<note>[\w ]+): (?P<said>[^\n]*) -->\n)?"
    r"^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_NOT_FENCED = re.compile(r"\n\n {4}[^ \n]|^ *(```|~~~)", re.MULTILINE)
_NOTES = ("", "file", "excerpt", "typed", "not run")
_SERVES = re.compile(r"^(make run|(bin/)?entrepot serve)\b")
# What `make test` and pytest, or a shell in which somebody works with entrepot, would pass on.
_OURS = re.compile(r"MAKE|MFLAGS|PYTEST|ENTREPOT_|DATA$|PYSPARK_|SPARK_")
# What a broker opens by default, and the port for TLS in the guide to security.
PORTS = {"9092": "kafka", "5672": "amqp", "1883": "mqtt", "61613": "stomp", "15672": "http"}
PORTS |= {"9324": "sqs"}
TLS_PORT = "9093"
_PORT = re.compile(rf"\b({'|'.join((*PORTS, TLS_PORT))})\b")
_END = "\x1e"  # Stands before the exit code, when a block has been run.

_SHELL = f"""
while IFS= read -r block && IFS= read -r typed; do
    . "$block" < "$typed"
    printf '{_END}%d\\n' $?
done
"""
_PYTHON = f"""
import sys, traceback
names = {{"__name__": "__main__"}}
for line in sys.stdin:
    path = line.rstrip("\\n")
    sys.stdin.readline()
    code = 0
    try:
        exec(compile(open(path, encoding="utf-8").read(), path, "exec"), names)
    except BaseException:
        code = 1
        traceback.print_exc(file=sys.stdout)
    print("{_END}%d" % code, flush=True)
"""


class GuideError(Exception):
    """A block did not do what its page says."""


@dataclass
class Block:
    """A fenced block of a page, and what a comment before it says about it."""

    line: int
    language: str
    text: str
    note: str
    said: str

    @property
    def is_session(self) -> bool:
        return not self.language and self.text.startswith("$ ")

    @property
    def is_output(self) -> bool:
        return not self.language and not self.note and not self.is_session

    @property
    def has_output(self) -> bool:
        return self.language in ("python", "sh") and self.note not in ("file", "excerpt")


def blocks_of(page: str) -> list[Block]:
    """Return the blocks of a page, in order. What would not be run unnoticed is refused."""
    outside = _BLOCK.sub("", page)
    if found := _NOT_FENCED.search(outside):
        raise GuideError(f"a block that is not fenced: {outside[found.start() :][:60].strip()!r}")
    blocks = [
        Block(
            line=page.count("\n", 0, match.start("text")),
            language=match["language"],
            text=match["text"],
            note=match["note"] or "",
            said=match["said"] or "",
        )
        for match in _BLOCK.finditer(page)
    ]
    for before, block in zip([None, *blocks], blocks, strict=False):
        if block.note not in _NOTES:
            raise GuideError(f"line {block.line}: nobody knows what {block.note!r} means")
        if block.is_output and (before is None or not before.has_output):
            raise GuideError(f"line {block.line}: the output of no block")
    return blocks


def commands_of(session: str) -> Iterator[tuple[str, str]]:
    """Yield the commands of a session, each with the output that is shown below it."""
    for part in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]:
        command, output = re.fullmatch(r"((?:[^\n]*\\\n)*[^\n]*\n)(.*)", part, re.DOTALL).groups()
        yield command, output


def matches(shown: str, printed: str) -> bool:
    """Say whether this was printed. `…` stands for anything, and any time is like another."""
    lines = _trimmed(shown).splitlines()
    pattern = "\n".join(
        "(?s:.*)" if line == "…" else re.escape(line).replace("…", ".*") for line in lines
    )
    pattern = re.sub(r"\b1[6-9]\d{11}\b", r"\\d{13}", pattern)
    return re.fullmatch(pattern, _trimmed(printed)) is not None


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


class Interpreter:
    """A shell or a Python that runs one block after the other, and says what each printed."""

    def __init__(self, command: list[str], directory: Path, environment: dict[str, str]) -> None:
        self._directory = directory
        self._errors = directory.parent / f"{Path(command[0]).name}.stderr"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                command,
                cwd=directory,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)

    def run(self, text: str, typed: str = "") -> str:
        """Return what the block printed; raise GuideError when it failed."""
        assert self._process.stdin is not None
        block, words = self._directory.parent / "block", self._directory.parent / "typed"
        block.write_text(text, "utf-8")
        words.write_text("".join(f"{word}\n" for word in typed.split()), "utf-8")
        self._process.stdin.write(f"{block}\n{words}\n".encode())
        self._process.stdin.flush()
        printed, code = self._answer()
        if code != 0:
            errors = self._errors.read_text("utf-8")[-5000:]
            raise GuideError(f"ended with {code}, and printed:\n{printed}\n{errors}")
        return printed

    def _answer(self) -> tuple[str, int]:
        assert self._process.stdout is not None
        said = b""
        deadline = time.monotonic() + BLOCK_S_MAX
        while _END.encode() not in said:
            if time.monotonic() > deadline:
                raise GuideError(f"still runs after {BLOCK_S_MAX} s, and printed:\n{said!r}")
            piece = self._process.stdout.read()
            if piece == b"":
                return said.decode(), self._process.wait()
            said += piece or b""
            time.sleep(0 if piece else STEP_S)
        while not said.endswith(b"\n"):
            said += self._process.stdout.read() or b""
        printed, _, code = said.decode().rpartition(_END)
        return printed, int(code)

    def close(self) -> None:
        end_group(self._process, signal.SIGKILL)


def end_group(process: "subprocess.Popen[bytes]", number: signal.Signals) -> int:
    """Send a process that leads a group, and all that are in it, a signal; wait for its end."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
    try:
        return process.wait(30)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise GuideError(f"did not end with {number.name}: {process.args!r}") from None


@dataclass
class Page:
    """Runs the blocks of one page in a directory that looks like a fresh checkout."""

    path: Path
    directory: Path
    ports: dict[str, int]  # By default -> the free one that is used.
    _serving: list["subprocess.Popen[bytes]"] = field(default_factory=list)
    _environment: dict[str, str] = field(default_factory=dict)

    def __enter__(self) -> Self:
        checkout = self.directory / "entrepot"
        (checkout / ".venv").mkdir(parents=True)
        for name in ("Makefile", "pyproject.toml", "bin", "examples", "src"):
            (checkout / name).symlink_to(ROOT / name)
        (checkout / ".venv" / "bin").symlink_to(BIN)
        (checkout / ".venv" / ".installed-run").touch()
        self.directory = checkout
        at = self.ports
        self._environment = {
            **{name: value for name, value in os.environ.items() if not _OURS.match(name)},
            "PATH": f"{BIN}:{ROOT / 'bin'}:{os.environ['PATH']}",
            "ENTREPOT_BOOTSTRAP": f"127.0.0.1:{at['9092']}",
            "ENTREPOT_AMQP": f"127.0.0.1:{at['5672']}",
            "ENTREPOT_HTTP": f"127.0.0.1:{at['15672']}",
            "ENTREPOT_MQTT": f"127.0.0.1:{at['1883']}",
            "ARGS": self._port_flags(),
            "PYTHONUNBUFFERED": "1",
        }
        self._shell = Interpreter(
            ["bash", "-e", "-o", "pipefail", "-c", _SHELL], checkout, self._environment
        )
        self._python = Interpreter(
            [sys.executable, "-c", _PYTHON],
            checkout,
            {**self._environment, "PYTHONPATH": self._own_path()},
        )
        return self

    def __exit__(self, *exc: object) -> None:
        for process in self._serving:
            end_group(process, signal.SIGTERM)
        self._shell.close()
        self._python.close()

    def _own_path(self) -> str:
        return os.pathsep.join([str(self.directory), os.environ.get("PYTHONPATH", "")])

    def _port_flags(self) -> str:
        at = self.ports
        return " ".join(f"--{name}-port {at[default]}" for default, name in PORTS.items())

    def run(self) -> None:
        """Run all blocks; raise GuideError with the place of the first that fails."""
        blocks = blocks_of(self.path.read_text("utf-8"))
        if not any(_SERVES.search(line) for each in blocks for line in each.text.splitlines()):
            self._serve("make run")
        for block, after in zip(blocks, [*blocks[1:], None], strict=True):
            shown = self._at_home(after.text) if after is not None and after.is_output else None
            try:
                self._run_block(block, shown)
            except GuideError as error:
                raise GuideError(f"{self.path}:{block.line + 1}: {error}") from None

    def _run_block(self, block: Block, shown: str | None) -> None:
        if block.is_output or block.note == "not run" or block.language == "text":
            return
        text = self._at_home(block.text)
        if block.note == "excerpt":
            if block.text not in (ROOT / block.said).read_text("utf-8"):
                raise GuideError(f"does not stand in {block.said}")
        elif block.note == "file":
            target = self.directory / block.said
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, "utf-8")
        elif block.language == "python":
            self._compare(shown, self._python.run(text))
        elif block.language == "sh":
            self._run_commands(text, shown, block.said)
        elif block.is_session:
            for command, output in commands_of(text):
                self._run_commands(command, output, block.said)
        else:
            raise GuideError(f"a block of {block.language}, and no comment says for which file")

    def _run_commands(self, text: str, shown: str | None, typed: str) -> None:
        """Run lines of shell; those that go on by themselves are left to go on."""
        printed, waiting = "", ""
        for line in re.findall(r"(?:[^\n]*\\\n)*[^\n]*\n", text):
            if _SERVES.match(line) or "Ctrl-C" in line.partition("#")[2]:
                printed += self._shell.run(waiting, typed) if waiting else ""
                if _SERVES.match(line):
                    printed += self._serve(line)
                else:
                    printed += self._run_until_shown(line, shown or "…", printed)
                waiting = ""
            else:
                waiting += line
        printed += self._shell.run(waiting, typed) if waiting else ""
        self._compare(shown, printed)

    def _compare(self, shown: str | None, printed: str) -> None:
        if shown is not None and not matches(shown, printed):
            raise GuideError(f"the page shows:\n{shown}\nbut this was printed:\n{printed}")

    def _serve(self, command: str) -> str:
        """Start a broker, for as long as the page goes on."""
        command = command.replace("entrepot serve", f"entrepot serve {self._port_flags()}")
        process, output = self._start(command)
        self._serving.append(process)
        self._wait_for(process, output, "…\nready")
        return output.read_text("utf-8")

    def _run_until_shown(self, command: str, shown: str, before: str) -> str:
        """Run a command until this is printed, of which a part was printed before; interrupt it."""
        process, output = self._start(command)
        try:
            self._wait_for(process, output, shown, before)
        finally:
            code = end_group(process, signal.SIGINT)
        if code not in (0, 128 + signal.SIGINT, -signal.SIGINT):
            raise GuideError(f"Ctrl-C ended it with {code}:\n{output.read_text('utf-8')}")
        return output.read_text("utf-8")

    def _start(self, command: str) -> tuple["subprocess.Popen[bytes]", Path]:
        output = self.directory.parent / f"output-{len(os.listdir(self.directory.parent))}"
        with output.open("wb") as file, output.with_suffix(".stderr").open("wb") as errors:
            process = subprocess.Popen(
                ["bash", "-c", command],
                cwd=self.directory,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=errors,
                start_new_session=True,
            )
        return process, output

    def _wait_for(
        self, process: "subprocess.Popen[bytes]", output: Path, shown: str, before: str = ""
    ) -> None:
        deadline = time.monotonic() + BLOCK_S_MAX
        while not (printed := output.read_text("utf-8")) or not matches(shown, before + printed):
            if process.poll() is not None or time.monotonic() > deadline:
                errors = output.with_suffix(".stderr").read_text("utf-8")[-5000:]
                raise GuideError(f"the page shows:\n{shown}\nbut this came:\n{printed}\n{errors}")
            time.sleep(STEP_S)

    def _at_home(self, text: str) -> str:
        """Put the ports and the directory that this run has in the place of the page's."""
        text = _PORT.sub(lambda found: str(self.ports[found[0]]), text)
        at = self.ports["5672"]
        text = text.replace('Parameters("localhost")', f'Parameters("localhost", {at})')
        text = text.replace("/srv/entrepot", str(self.directory))
        return text.replace("--host 0.0.0.0", "--host 127.0.0.1")  # Tests stay on this machine.
