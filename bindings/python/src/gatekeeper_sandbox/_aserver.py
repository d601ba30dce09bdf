"""A warm server for asyncio: many runs from one `gatekeeper serve`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
from typing import Any, AsyncIterator, Mapping, Optional, Sequence

from ._answers import AsyncAnswers, AsyncOnAsk
from ._errors import NoReport, ProgramMissing, ServerGone
from ._exchange import Exchange, unread
from ._invocation import How
from ._report import Output, Report
from ._words import Command, Input


class AsyncServer:
    """Runs commands without starting gatekeeper for each. Its end, at the end of `async with`, ends every run."""

    def __init__(self, program: str, flags: Sequence[str] = ()) -> None:
        self.flags = tuple(flags)
        self._program = program
        self._process: Optional[asyncio.subprocess.Process] = None
        self._reader: Optional[asyncio.Task[None]] = None
        self._waiting: dict[int, AsyncServerStream] = {}
        self._last = 0
        self._closed = True
        self._why_gone = "the server ended before it answered"

    async def __aenter__(self) -> AsyncServer:
        pipe = subprocess.PIPE
        try:
            self._process = await asyncio.create_subprocess_exec(
                self._program, "serve", stdin=pipe, stdout=pipe
            )
        except OSError as error:
            raise ProgramMissing(str(error)) from error
        self._closed = False
        self._reader = asyncio.ensure_future(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def run(
        self,
        command: Command,
        *,
        flags: Sequence[str] = (),
        timeout: Optional[float] = None,
        input: Input = "",
        cwd: Optional[str] = None,
        env: Mapping[str, str] = {},
        stage: Optional[str] = None,
        on_ask: Optional[AsyncOnAsk] = None,
    ) -> Report:
        """Runs a command, given as words or as a line for sh. The report has its output. The input is UTF-8."""
        async with self._run(command, How(flags, timeout, input, cwd, env, stage), False, on_ask) as run:
            return await run.report()

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
        on_ask: Optional[AsyncOnAsk] = None,
    ) -> AsyncServerStream:
        """A command to be used as `async with ... as stream: async for output in stream`; it starts on entry.

        The server has one connection for all runs, so output that is not read yet waits in memory, and does not hold up the command."""
        return self._run(command, How(flags, timeout, input, cwd, env, stage), True, on_ask)

    async def close(self) -> None:
        """Ends every run, and the server."""
        self._closed = True
        if self._process:
            if self._process.returncode is None:
                self._process.kill()
            await self._process.wait()
        if self._reader:
            await asyncio.gather(self._reader, return_exceptions=True)

    def _run(self, command: Command, how: How, streams: bool, on_ask: Optional[AsyncOnAsk]) -> AsyncServerStream:
        self._last += 1
        exchange = Exchange(self._last, self.flags, command, how, streams=streams, asks=on_ask is not None)
        return AsyncServerStream(self, exchange, on_ask)

    async def _send(self, line: bytes) -> None:
        if self._closed or self._process is None or self._process.stdin is None:
            raise ServerGone("the server is not running; use it by `async with`")
        try:
            self._process.stdin.write(line)
            await self._process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ServerGone(f"the server has ended: {error}") from error

    async def _read(self) -> None:
        assert self._process and self._process.stdout
        has_ended = False
        try:
            async for line in _lines(self._process.stdout):
                answer = json.loads(line)
                if answer.get("id") is None:
                    self._why_gone = unread(answer)
                    break
                run = self._waiting.get(answer.get("id"))
                if run:
                    run._take(answer)
            else:
                has_ended = True
        finally:
            if not has_ended:
                # So that what the runs are told is true.
                with contextlib.suppress(ProcessLookupError):
                    self._process.kill()
            self._closed = True
            for run in self._waiting.values():
                run._take(None)


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """The lines of a stream, however long: `--output` says how much of the output an answer holds."""
    parts: list[bytes] = []
    while chunk := await stream.read(1 << 16):
        first, *others = chunk.split(b"\n")
        parts.append(first)
        for part in others:
            yield b"".join(parts)
            parts = [part]


class AsyncServerStream:
    """The output of a run of the server as it arrives, then its report."""

    def __init__(self, server: AsyncServer, exchange: Exchange, on_ask: Optional[AsyncOnAsk]) -> None:
        self._server = server
        self._exchange = exchange
        self._asked = AsyncAnswers(on_ask, self._answer) if on_ask else None
        self._answers: Optional[asyncio.Queue[Optional[Mapping[str, Any]]]] = None
        self._failed = False

    async def __aenter__(self) -> AsyncServerStream:
        # Made here: before Python 3.10, a queue belongs to the loop in which it is made.
        self._answers = asyncio.Queue()
        self._server._waiting[self._exchange.identity] = self
        try:
            await self._server._send(self._exchange.order)
        except BaseException:
            self._server._waiting.pop(self._exchange.identity, None)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[Output]:
        return self._follow()

    async def report(self) -> Report:
        """Reads what is left of the output, and returns the report."""
        async for _ in self:
            pass
        if self._asked and self._asked.error:
            raise self._asked.error
        assert self._exchange.report
        return self._exchange.report

    async def close(self) -> None:
        """Ends the command and everything it started, if it still runs, and waits for that."""
        try:
            if self._answers and self._exchange.report is None and not self._failed and not self._server._closed:
                await self._server._send(self._exchange.cancellation)
                async for _ in self:
                    pass
        except (NoReport, ServerGone):
            pass
        finally:
            self._server._waiting.pop(self._exchange.identity, None)
            if self._asked:
                await self._asked.close()

    async def _follow(self) -> AsyncIterator[Output]:
        if self._answers is None:
            raise NoReport("the stream was not entered by `async with`")
        while self._exchange.report is None:
            answer = await self._answers.get()
            try:
                if answer is None:
                    raise ServerGone(self._server._why_gone)
                outputs = self._exchange.take(answer)
            except (NoReport, ServerGone):
                self._failed = True
                raise
            for output in outputs:
                yield output

    def _take(self, answer: Optional[Mapping[str, Any]]) -> None:
        """Takes an answer of the server; None: it has ended."""
        assert self._answers is not None
        if self._asked and answer and "ask" in answer:
            self._asked.take(answer["ask"])
        else:
            self._answers.put_nowait(answer)

    async def _answer(self, question: object, decision: str) -> None:
        try:
            await self._server._send(self._exchange.answer(question, decision))
        except ServerGone:
            pass  # The reader tells it to whoever waits for an answer.
