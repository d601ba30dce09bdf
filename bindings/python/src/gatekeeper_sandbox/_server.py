"""A warm server: many runs from one `gatekeeper serve`, from any number of threads."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from typing import Any, Iterator, Mapping, Optional, Sequence

from ._answers import OnAsk, QueuedAnswers
from ._errors import NoReport, ProgramMissing, ServerGone
from ._exchange import Exchange, unread
from ._invocation import How
from ._report import Output, Report
from ._words import Command, Input

# The end of a run's answers: the server has ended.
_GONE: Mapping[str, Any] = {}


class Server:
    """Runs commands without starting gatekeeper for each. Use it as a context manager: its end ends every run."""

    def __init__(self, program: str, flags: Sequence[str] = ()) -> None:
        self.flags = tuple(flags)
        self._lock = threading.Lock()
        # Apart from `_lock`: a write waits until the server reads, and it may read only after its answers are read.
        self._writing = threading.Lock()
        self._why_gone = "the server ended before it answered"
        self._waiting: dict[int, ServerStream] = {}
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
        input: Input = "",
        cwd: Optional[str] = None,
        env: Mapping[str, str] = {},
        stage: Optional[str] = None,
        on_ask: Optional[OnAsk] = None,
    ) -> Report:
        """Runs a command, given as words or as a line for sh. The report has its output. The input is UTF-8."""
        with self._start(command, How(flags, timeout, input, cwd, env, stage), False, on_ask) as run:
            return run.report()

    def stream(
        self,
        command: Command,
        *,
        flags: Sequence[str] = (),
        timeout: Optional[float] = None,
        input: Input = "",
        cwd: Optional[str] = None,
        env: Mapping[str, str] = {},
        stage: Optional[str] = None,
        on_ask: Optional[OnAsk] = None,
    ) -> ServerStream:
        """Starts a command whose output is iterated over. Closing the stream ends the command and everything it started.

        The server has one connection for all runs, so output that is not read yet waits in memory, and does not hold up the command."""
        return self._start(command, How(flags, timeout, input, cwd, env, stage), True, on_ask)

    def close(self) -> None:
        """Ends every run, and the server."""
        with self._lock:
            self._closed = True
        # Killed, and not only its input closed: that would wait for the runs. The guardians end everything.
        self._process.kill()
        self._process.wait()
        self._reader.join()
        with self._writing:
            for stream in (self._process.stdin, self._process.stdout):
                if stream:
                    try:
                        stream.close()
                    except BrokenPipeError:
                        pass

    def _start(self, command: Command, how: How, streams: bool, on_ask: Optional[OnAsk]) -> ServerStream:
        with self._lock:
            self._last += 1
            identity = self._last
        exchange = Exchange(identity, self.flags, command, how, streams=streams, asks=on_ask is not None)
        run = ServerStream(self, exchange, on_ask)
        with self._lock:
            self._waiting[identity] = run
        try:
            self._send(exchange.order)
        except ServerGone:
            self._forget(identity)
            raise
        return run

    def _send(self, line: bytes) -> None:
        with self._writing:
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
                if answer.get("id") is None:
                    self._why_gone = unread(answer)
                    break
                with self._lock:
                    run = self._waiting.get(answer.get("id"))
                if run:
                    run._take(answer)
        finally:
            # So that what the runs are told is true.
            self._process.kill()
            with self._lock:
                self._closed = True
                for run in self._waiting.values():
                    run._take(_GONE)

    def _forget(self, identity: int) -> None:
        with self._lock:
            self._waiting.pop(identity, None)


class ServerStream:
    """The output of a run of the server as it arrives, then its report."""

    def __init__(self, server: Server, exchange: Exchange, on_ask: Optional[OnAsk]) -> None:
        self._server = server
        self._exchange = exchange
        self._answers: queue.SimpleQueue[Mapping[str, Any]] = queue.SimpleQueue()
        self._asked = QueuedAnswers(on_ask, self._answer) if on_ask else None
        self._outputs = self._follow()

    def __iter__(self) -> Iterator[Output]:
        return self._outputs

    def __enter__(self) -> ServerStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def report(self) -> Report:
        """Reads what is left of the output, and returns the report."""
        for _ in self._outputs:
            pass
        if self._asked and self._asked.error:
            raise self._asked.error
        if self._exchange.report is None:
            raise ServerGone("the stream is closed")
        return self._exchange.report

    def close(self) -> None:
        """Ends the command and everything it started, if it still runs, and waits for that."""
        try:
            if self._exchange.report is None:
                self._send(self._exchange.cancellation)
            while self._exchange.report is None:
                answer = self._answers.get()
                if answer is _GONE:
                    break
                self._exchange.take(answer)
        except NoReport:
            pass
        finally:
            self._end()

    def _follow(self) -> Iterator[Output]:
        while self._exchange.report is None:
            answer = self._answers.get()
            if answer is _GONE:
                self._answers.put(_GONE)
                raise ServerGone(self._server._why_gone)
            yield from self._exchange.take(answer)
        self._end()

    def _take(self, answer: Mapping[str, Any]) -> None:
        """Takes an answer, on the thread that reads them."""
        if self._asked and "ask" in answer:
            self._asked.take(answer["ask"])
        else:
            self._answers.put(answer)

    def _answer(self, question: object, decision: str) -> None:
        self._send(self._exchange.answer(question, decision))

    def _send(self, line: bytes) -> None:
        try:
            self._server._send(line)
        except ServerGone:
            pass  # The reader tells it to whoever waits for an answer.

    def _end(self) -> None:
        self._server._forget(self._exchange.identity)
        if self._asked:
            self._asked.close()
