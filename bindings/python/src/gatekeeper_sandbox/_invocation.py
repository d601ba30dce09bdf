"""What the blocking and the asyncio interface share: the settings of a caller, and the start and the end of one `gatekeeper run`."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from typing import Any, Iterator, Mapping, Optional, Sequence, Union

from . import _words
from ._errors import NoReport, ProgramMissing
from ._report import Output, Report
from ._words import Command

Profile = Union[str, Sequence[str], None]


class Settings:
    """What holds for every run of a caller. `flags` are flags of `gatekeeper run`."""

    def __init__(
        self, profile: Profile = None, net: Optional[str] = None, flags: Sequence[str] = (), program: Optional[str] = None
    ) -> None:
        self.program = _words.find_program(program)
        self.flags = tuple(_words.policy_flags(profile, net, None, None, None, flags))

    def _invocation(
        self,
        command: Command,
        flags: Sequence[str],
        timeout: Optional[float],
        input: bytes,
        cwd: Optional[str],
        env: Mapping[str, str],
        stage: Optional[str],
        *,
        captures: bool,
    ) -> Invocation:
        words = _words.policy_flags(None, None, timeout, cwd, stage, [*self.flags, *flags])
        return Invocation(self.program, words, command, input, env, captures)


class Invocation:
    """One `gatekeeper run`. With `captures`, the report and the output come as one document, else the report has a pipe of its own."""

    def __init__(
        self, program: str, flags: Sequence[str], command: Command, input: bytes, env: Mapping[str, str], captures: bool
    ) -> None:
        set_env, self._environment = _words.environment(env)
        self._before = [program, "run", "--quiet", *flags, *set_env]
        self._after = _words.command_words(command)
        self.input, self.captures = input, captures
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
            words += ["--ask-fd", str(passed[1])]
        options = {
            "stdin": subprocess.PIPE if self.input else subprocess.DEVNULL,
            "stdout": theirs if self.captures else subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "pass_fds": passed[self.captures :],
            "env": self._environment,
        }
        try:
            yield words + self._after, options
        except BaseException as error:
            os.close(self.report)
            if self.questions:
                self.questions.close()
            if isinstance(error, OSError):
                raise ProgramMissing(str(error)) from error
            raise
        finally:
            for fd in passed:
                os.close(fd)

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
