"""A warm server: many runs from one `gatekeeper serve`, from any number of threads."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from typing import Any, Iterator, Mapping, Optional, Sequence

from . import _words
from ._errors import NoReport, ProgramMissing, ServerGone
from ._report import Output, Report, stream_bytes
from ._words import Command

# The end of a run's answers: the server has ended.
_GONE: Mapping[str, Any] = {}


class Server:
    """Runs commands without starting gatekeeper for each. Use it as a context manager: its end ends every run.

    The server does not ask (`on_ask`): a run that does needs a gatekeeper of its own."""

    def __init__(self, program: str, flags: Sequence[str] = ()) -> None:
        self.flags = tuple(flags)
        self._lock = threading.Lock()
        self._waiting: dict[int, queue.SimpleQueue[Mapping[str, Any]]] = {}
        self._last = 0
        self._closed = False
        try:
            self._process = subprocess.Popen([program, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError as error:
            raise ProgramMissing(str(error)) from error
        self._reader = threading.Thread(target=self._read, name="gatekeeper-serve", daemon=True)
        self._reader.start()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(
        self,
        command: Command,
        *,
        flags: Sequence[str] = (),
        timeout: Optional[float] = None,
        input: str = "",
        cwd: Optional[str] = None,
        env: Mapping[str, str] = {},
        stage: Optional[str] = None,
    ) -> Report:
        """Runs a command, given as words or as a line for sh. The report has its output. The input is text."""
        with self.stream(
            command, flags=flags, timeout=timeout, input=input, cwd=cwd, env=env, stage=stage, _streams=False
        ) as run:
            return run.report()

    def stream(
        self,
        command: Command,
        *,
        flags: Sequence[str] = (),
        timeout: Optional[float] = None,
        input: str = "",
        cwd: Optional[str] = None,
        env: Mapping[str, str] = {},
        stage: Optional[str] = None,
        _streams: bool = True,
    ) -> ServerStream:
        """Starts a command whose output is iterated over. Closing the stream ends the command and everything it started."""
        words = _words.policy_flags(None, None, timeout, None, stage, [*self.flags, *flags])
        answers: queue.SimpleQueue[Mapping[str, Any]] = queue.SimpleQueue()
        with self._lock:
            self._last += 1
            identity = self._last
            self._waiting[identity] = answers
        line = _words.order(identity, command, words, cwd=cwd, env=dict(env), stdin=input, stream=_streams)
        self._send(line)
        return ServerStream(self, identity, answers)

    def close(self) -> None:
        """Ends every run, and the server."""
        with self._lock:
            self._closed = True
        # Killed, and not only its input closed: that would wait for the runs. The guardians end everything.
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            if stream:
                try:
                    stream.close()
                except BrokenPipeError:
                    pass

    def _send(self, line: bytes) -> None:
        with self._lock:
            if self._closed or self._process.stdin is None:
                raise ServerGone("the server is closed")
            try:
                self._process.stdin.write(line)
                self._process.stdin.flush()
            except (OSError, ValueError) as error:
                raise ServerGone(f"the server has ended: {error}") from error

    def _read(self) -> None:
        assert self._process.stdout
        try:
            for line in self._process.stdout:
                answer = json.loads(line)
                with self._lock:
                    answers = self._waiting.get(answer.get("id"))
                if answers:
                    answers.put(answer)
        finally:
            with self._lock:
                self._closed = True
                for answers in self._waiting.values():
                    answers.put(_GONE)

    def _forget(self, identity: int) -> None:
        with self._lock:
            self._waiting.pop(identity, None)

    def _cancel(self, identity: int) -> None:
        try:
            self._send(_words.cancellation(identity))
        except ServerGone:
            pass


class ServerStream:
    """The output of a run of the server as it arrives, then its report."""

    def __init__(self, server: Server, identity: int, answers: queue.SimpleQueue[Mapping[str, Any]]) -> None:
        self._server = server
        self._identity = identity
        self._answers = answers
        self._report: Optional[Report] = None
        self._outputs = self._follow()

    def __iter__(self) -> Iterator[Output]:
        return self._outputs

    def __enter__(self) -> ServerStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _follow(self) -> Iterator[Output]:
        while self._report is None:
            answer = self._answers.get()
            if answer is _GONE:
                self._answers.put(_GONE)
                raise ServerGone("the server ended before it answered")
            for output in outputs(answer):
                yield output
            self._report = ended(answer)
        self._server._forget(self._identity)

    def report(self) -> Report:
        """Reads what is left of the output, and returns the report."""
        for _ in self._outputs:
            pass
        if self._report is None:
            raise ServerGone("the stream is closed")
        return self._report

    def close(self) -> None:
        """Ends the command and everything it started, if it still runs, and waits for that."""
        if self._report is None:
            self._server._cancel(self._identity)
            try:
                while self._report is None:
                    answer = self._answers.get()
                    if answer is _GONE:
                        break
                    self._report = ended(answer)
            except NoReport:
                pass
        self._server._forget(self._identity)


def outputs(answer: Mapping[str, Any]) -> list[Output]:
    """The output in an answer of the server."""
    return [Output(name, stream_bytes(answer, name)) for name in ("stdout", "stderr") if name in answer]


def ended(answer: Mapping[str, Any]) -> Optional[Report]:
    """The report in an answer; None if the run goes on. An error means that nothing was run."""
    if "error" in answer:
        raise NoReport(str(answer["error"]))
    return Report.parse(answer["report"]) if "report" in answer else None
