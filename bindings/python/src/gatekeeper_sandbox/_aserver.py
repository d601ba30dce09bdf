"""A warm server for asyncio: many runs from one `gatekeeper serve`."""

from __future__ import annotations

import asyncio
import json
import subprocess
from typing import Any, AsyncIterator, Mapping, Optional, Sequence

from . import _words
from ._errors import NoReport, ProgramMissing, ServerGone
from ._report import Output, Report
from ._server import ended, outputs
from ._words import Command

# The longest answer: two captured streams of 1 MiB, which JSON may make six times as long.
_LONGEST = 64 << 20


class AsyncServer:
    """Runs commands without starting gatekeeper for each. Its end, at the end of `async with`, ends every run."""

    def __init__(self, program: str, flags: Sequence[str] = ()) -> None:
        self.flags = tuple(flags)
        self._program = program
        self._process: Optional[asyncio.subprocess.Process] = None
        self._reader: Optional[asyncio.Task[None]] = None
        self._waiting: dict[int, asyncio.Queue[Optional[Mapping[str, Any]]]] = {}
        self._last = 0
        self._closed = True

    async def __aenter__(self) -> AsyncServer:
        pipe = subprocess.PIPE
        try:
            self._process = await asyncio.create_subprocess_exec(
                self._program, "serve", stdin=pipe, stdout=pipe, limit=_LONGEST
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
        input: str = "",
        cwd: Optional[str] = None,
        env: Mapping[str, str] = {},
        stage: Optional[str] = None,
    ) -> Report:
        """Runs a command, given as words or as a line for sh. The report has its output. The input is text."""
        words = _words.policy_flags(None, None, timeout, None, stage, [*self.flags, *flags])
        async with AsyncServerStream(self, command, words, cwd=cwd, env=dict(env), stdin=input) as run:
            return await run.report()

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
    ) -> AsyncServerStream:
        """A command to be used as `async with ... as stream: async for output in stream`; it starts on entry."""
        words = _words.policy_flags(None, None, timeout, None, stage, [*self.flags, *flags])
        return AsyncServerStream(self, command, words, cwd=cwd, env=dict(env), stdin=input, stream=True)

    async def close(self) -> None:
        """Ends every run, and the server."""
        self._closed = True
        if self._process:
            if self._process.returncode is None:
                self._process.kill()
            await self._process.wait()
        if self._reader:
            await asyncio.gather(self._reader, return_exceptions=True)

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
        try:
            async for line in self._process.stdout:
                answer = json.loads(line)
                answers = self._waiting.get(answer.get("id"))
                if answers:
                    answers.put_nowait(answer)
        finally:
            self._closed = True
            for answers in self._waiting.values():
                answers.put_nowait(None)


class AsyncServerStream:
    """The output of a run of the server as it arrives, then its report."""

    def __init__(self, server: AsyncServer, command: Command, flags: Sequence[str], **rest: Any) -> None:
        self._server = server
        self._order = (command, flags, rest)
        self._answers: asyncio.Queue[Optional[Mapping[str, Any]]] = asyncio.Queue()
        self._identity = 0
        self._report: Optional[Report] = None
        self._failed = False

    async def __aenter__(self) -> AsyncServerStream:
        command, flags, rest = self._order
        self._server._last += 1
        self._identity = self._server._last
        self._server._waiting[self._identity] = self._answers
        await self._server._send(_words.order(self._identity, command, flags, **rest))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[Output]:
        return self._follow()

    async def _follow(self) -> AsyncIterator[Output]:
        while self._report is None:
            answer = await self._answers.get()
            if answer is None:
                self._failed = True
                raise ServerGone("the server ended before it answered")
            for output in outputs(answer):
                yield output
            try:
                self._report = ended(answer)
            except NoReport:
                self._failed = True
                raise

    async def report(self) -> Report:
        """Reads what is left of the output, and returns the report."""
        async for _ in self:
            pass
        assert self._report
        return self._report

    async def close(self) -> None:
        """Ends the command and everything it started, if it still runs, and waits for that."""
        try:
            if self._report is None and not self._failed and not self._server._closed:
                await self._server._send(_words.cancellation(self._identity))
                async for _ in self:
                    pass
        except (NoReport, ServerGone):
            pass
        finally:
            self._server._waiting.pop(self._identity, None)
