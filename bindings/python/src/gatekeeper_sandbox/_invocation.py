"""What the blocking and the asyncio interface share: how a command runs, and the start and the end of one `gatekeeper run`."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from dataclasses import dataclass
from typing import Any, Iterator, Mapping, Optional, Sequence, Union

from . import _words
from ._errors import NoReport, ProgramMissing
from ._report import Denial, Output, Report
from ._words import Command, Input

Profile = Union[str, Sequence[str], None]


@dataclass(frozen=True)
class How:
    """How one command runs: the arguments that all methods take."""

    flags: Sequence[str]
    timeout: Optional[float]
    input: Input
    cwd: Optional[str]
    env: Mapping[str, str]
    stage: Optional[str]


class Grants:
    """The flags of a command that runs again after each yes."""

    def __init__(self, flags: Sequence[str], most: int) -> None:
        self.flags, self._left = list(flags), most

    def wanted(self, report: Report) -> Optional[Denial]:
        """The denial to ask about; None if the command is not to run again."""
        if report.ok or report.outcome != "exited" or self._left <= 0:
            return None
        self._left -= 1
        return next((denial for denial in report.denials if denial.allow_with), None)


class Settings:
    """What holds for every run of a caller. `flags` are flags of `gatekeeper run`."""

    def __init__(
        self, profile: Profile = None, net: Optional[str] = None, flags: Sequence[str] = (), program: Optional[str] = None
    ) -> None:
        self.program = _words.find_program(program)
        self.flags = tuple(_words.policy_flags(profile, net, None, None, None, flags))

    def _invocation(self, command: Command, how: How, *, captures: bool) -> Invocation:
        words = _words.policy_flags(None, None, how.timeout, how.cwd, how.stage, [*self.flags, *how.flags])
        return Invocation(self.program, words, command, how.input, how.env, captures)


class Invocation:
    """One `gatekeeper run`. With `captures`, the report and the output come as one document, else the report has a pipe of its own."""

    def __init__(
        self, program: str, flags: Sequence[str], command: Command, input: Input, env: Mapping[str, str], captures: bool
    ) -> None:
        self._variables = _words.variables(env)
        self._before = [program, "run", "--quiet", *flags]
        self._after = _words.command_words(command)
        self.input = input.encode() if isinstance(input, str) else input
        self.captures = captures
        self.report = -1
        self.questions: Optional[socket.socket] = None
        self.document = b""
        self._messages = b""

    @contextlib.contextmanager
    def starting(self, asks: bool) -> Iterator[tuple[list[str], dict[str, Any]]]:
        """Gives the words and the options for the new process. Afterwards our ends are `report` and, if it asks, `questions`."""
        self.report, theirs = os.pipe()
        words, passed = [*self._before], [theirs]
        words += ["--json"] if self.captures else ["--report-fd", str(theirs)]
        if asks:
            self.questions, other = socket.socketpair()
            passed.append(other.detach())
            words += ["--ask-fd", str(passed[-1])]
        variables: Optional[int] = None
        if self._variables:
            read, variables = os.pipe()
            passed.append(read)
            words += ["--env-fd", str(read)]
        options = {
            "stdin": subprocess.PIPE if self.input else subprocess.DEVNULL,
            "stdout": theirs if self.captures else subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "pass_fds": passed[self.captures :],
        }
        try:
            yield words + self._after, options
        except BaseException as error:
            os.close(self.report)
            if self.questions:
                self.questions.close()
            if variables is not None:
                os.close(variables)
            if isinstance(error, OSError):
                raise ProgramMissing(str(error)) from error
            raise
        finally:
            for fd in passed:
                os.close(fd)
        if variables is not None:
            # gatekeeper reads them first of all. Our copy of its end is closed, so this does not wait for one that has ended.
            with os.fdopen(variables, "wb", 0) as pipe, contextlib.suppress(BrokenPipeError):
                _write_all(pipe.fileno(), self._variables)

    def output(self, stream: str, chunk: bytes) -> Optional[Output]:
        """Takes what arrived on a stream; None if the caller gets it with the report."""
        if stream == "stderr":
            self._messages = (self._messages + chunk)[-4096:]
        return None if self.captures else Output(stream, chunk)

    def ended(self, status: int) -> Report:
        """The report, after gatekeeper has ended."""
        if not self.document:
            raise NoReport(f"no report, status {status}: {self._messages.decode(errors='replace').strip()}")
        return Report.parse(self.document)


def _write_all(to: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(to, rest) :]
