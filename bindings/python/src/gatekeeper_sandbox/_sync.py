"""Runs that block the calling thread."""

from __future__ import annotations

import os
import selectors
import subprocess
from typing import Callable, Iterator, Mapping, Optional, Sequence

from ._answers import OnAsk, of_socket
from ._invocation import Grants, How, Invocation, Settings
from ._report import Denial, Output, Report
from ._server import Server
from ._stage import Stage
from ._words import Command, Input

OnOutput = Callable[[Output], None]


class Gatekeeper(Settings):
    """Runs commands confined. What is given here holds for every run; `flags` are flags of `gatekeeper run`.

    A command never runs unconfined: without a report, an exception is raised."""

    def run(
        self,
        command: Command,
        *,
        flags: Sequence[str] = (),
        timeout: Optional[float] = None,
        input: Input = b"",
        cwd: Optional[str] = None,
        env: Mapping[str, str] = {},
        stage: Optional[str] = None,
        on_output: Optional[OnOutput] = None,
        on_ask: Optional[OnAsk] = None,
    ) -> Report:
        """Runs a command, given as words or as a line for sh.

        With on_output, the output goes there as it arrives; otherwise the report has it. on_ask decides about each refused path, host
        and UNIX socket while the call waits. Changes wait in the stage of that name, if there is one."""
        invocation = self._invocation(
            command, How(flags, timeout, input, cwd, env, stage), captures=on_output is None
        )
        with _Run(invocation, on_ask) as run:
            for output in run.follow():
                if on_output:
                    on_output(output)
            return run.report()

    def stream(
        self,
        command: Command,
        *,
        flags: Sequence[str] = (),
        timeout: Optional[float] = None,
        input: Input = b"",
        cwd: Optional[str] = None,
        env: Mapping[str, str] = {},
        stage: Optional[str] = None,
        on_ask: Optional[OnAsk] = None,
    ) -> Stream:
        """Starts a command whose output is iterated over. Closing the stream ends the command and everything it started."""
        how = How(flags, timeout, input, cwd, env, stage)
        return Stream(_Run(self._invocation(command, how, captures=False), on_ask))

    def run_asking(
        self,
        command: Command,
        ask: Callable[[Denial], bool],
        *,
        most: int = 4,
        flags: Sequence[str] = (),
        timeout: Optional[float] = None,
        input: Input = b"",
        cwd: Optional[str] = None,
        env: Mapping[str, str] = {},
        stage: Optional[str] = None,
        on_output: Optional[OnOutput] = None,
    ) -> Report:
        """Runs a command. If it failed and something was denied, calls ask and, on a yes, runs it again with that grant."""
        grants = Grants(flags, most)
        while True:
            report = self.run(
                command, flags=grants.flags, timeout=timeout, input=input, cwd=cwd, env=env, stage=stage, on_output=on_output
            )
            denial = grants.wanted(report)
            if denial is None or not ask(denial):
                return report
            grants.flags += denial.grant

    def stage(self, name: str) -> Stage:
        """The stage of this name, in which `run(..., stage=name)` keeps changes."""
        return Stage(self.program, name)

    def serve(self) -> Server:
        """A warm server for many runs: `with gatekeeper.serve() as server: server.run(...)`."""
        return Server(self.program, self.flags)


class Stream:
    """The output of a command as it arrives, then its report."""

    def __init__(self, run: _Run) -> None:
        self._run = run
        self._outputs = run.follow()

    def __iter__(self) -> Iterator[Output]:
        return self._outputs

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def report(self) -> Report:
        """Reads what is left of the output, and returns the report."""
        for _ in self._outputs:
            pass
        try:
            return self._run.report()
        finally:
            self._run.close()

    def close(self) -> None:
        """Ends the command and everything it started, if it still runs."""
        self._run.close()


class _Run:
    """One `gatekeeper run`, from its start to its report."""

    def __init__(self, invocation: Invocation, on_ask: Optional[OnAsk]) -> None:
        self._invocation = invocation
        self._input = memoryview(invocation.input)
        with invocation.starting(on_ask is not None) as (words, options):
            self._process: subprocess.Popen[bytes] = subprocess.Popen(words, **options)
        self._answers = of_socket(invocation.questions, on_ask) if invocation.questions and on_ask else None

    def __enter__(self) -> _Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def follow(self) -> Iterator[Output]:
        """Reads the report and the streams and writes the input, all at once, so that none blocks another."""
        process = self._process
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._invocation.report, selectors.EVENT_READ, "report")
            for name, pipe in (("stdout", process.stdout), ("stderr", process.stderr)):
                if pipe:
                    waiting.register(pipe, selectors.EVENT_READ, name)
            if process.stdin:
                os.set_blocking(process.stdin.fileno(), False)
                waiting.register(process.stdin, selectors.EVENT_WRITE, "stdin")
            while waiting.get_map():
                for key, _ in waiting.select():
                    if key.data == "stdin":
                        if not self._write(key.fd):
                            waiting.unregister(key.fileobj)
                            assert process.stdin
                            process.stdin.close()
                        continue
                    chunk = os.read(key.fd, 65536)
                    if not chunk:
                        waiting.unregister(key.fileobj)
                    elif key.data == "report":
                        self._invocation.document += chunk
                    else:
                        output = self._invocation.output(key.data, chunk)
                        if output:
                            yield output

    def _write(self, to: int) -> bool:
        """Writes a part of the input; whether some is left. The command may end without having read all of it."""
        try:
            self._input = self._input[os.write(to, self._input[:65536]) :]
        except BrokenPipeError:
            return False
        return len(self._input) > 0

    def report(self) -> Report:
        status = self._process.wait()
        if self._answers and self._answers.error:
            raise self._answers.error
        return self._invocation.ended(status)

    def close(self) -> None:
        process = self._process
        if process.poll() is None:
            # When gatekeeper dies, its guardian ends everything it started.
            process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream:
                try:
                    stream.close()
                except BrokenPipeError:
                    pass
        if self._invocation.report >= 0:
            os.close(self._invocation.report)
            self._invocation.report = -1
