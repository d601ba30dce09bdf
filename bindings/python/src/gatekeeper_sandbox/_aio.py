"""The same for asyncio."""

from __future__ import annotations

import asyncio
import os
import subprocess
from typing import AsyncIterator, Awaitable, Callable, Mapping, Optional, Sequence

from ._answers import AsyncAnswers, AsyncOnAsk
from ._aserver import AsyncServer
from ._errors import NoReport, ProgramMissing
from ._invocation import Grants, How, Invocation, Settings
from ._report import Change, Denial, Output, Report
from ._stage import judge, parse_changes, stage_words
from ._sync import OnOutput
from ._words import Command, Input


class AsyncGatekeeper(Settings):
    """Runs commands confined, as Gatekeeper does. Cancelling a task ends its command and everything it started."""

    async def run(
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
        on_ask: Optional[AsyncOnAsk] = None,
    ) -> Report:
        """Runs a command, given as words or as a line for sh. Without on_output, the report has its output."""
        invocation = self._invocation(
            command, How(flags, timeout, input, cwd, env, stage), captures=on_output is None
        )
        async with AsyncStream(invocation, on_ask) as run:
            async for output in run:
                if on_output:
                    on_output(output)
            return await run.report()

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
        on_ask: Optional[AsyncOnAsk] = None,
    ) -> AsyncStream:
        """A command to be used as `async with ... as stream: async for output in stream`; it starts on entry."""
        how = How(flags, timeout, input, cwd, env, stage)
        return AsyncStream(self._invocation(command, how, captures=False), on_ask)

    async def run_asking(
        self,
        command: Command,
        ask: Callable[[Denial], Awaitable[bool]],
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
        """Runs a command. If it failed and something was denied, awaits ask and, on a yes, runs it again with that grant."""
        grants = Grants(flags, most)
        while True:
            report = await self.run(
                command, flags=grants.flags, timeout=timeout, input=input, cwd=cwd, env=env, stage=stage, on_output=on_output
            )
            denial = grants.wanted(report)
            if denial is None or not await ask(denial):
                return report
            grants.flags += denial.grant

    def stage(self, name: str) -> AsyncStage:
        return AsyncStage(self.program, name)

    def serve(self) -> AsyncServer:
        """A warm server for many runs: `async with gatekeeper.serve() as server: await server.run(...)`."""
        return AsyncServer(self.program, self.flags)


class AsyncStream:
    """The output of a command as it arrives, then its report."""

    def __init__(self, invocation: Invocation, on_ask: Optional[AsyncOnAsk]) -> None:
        self._invocation, self._on_ask = invocation, on_ask
        self._process: Optional[asyncio.subprocess.Process] = None
        self._outputs: Optional[asyncio.Queue[Optional[Output]]] = None
        self._pipe: Optional[asyncio.BaseTransport] = None
        self._tasks: list[asyncio.Task[None]] = []
        self._answers: Optional[AsyncAnswers] = None

    async def __aenter__(self) -> AsyncStream:
        invocation = self._invocation
        with invocation.starting(self._on_ask is not None) as (words, options):
            self._process = await asyncio.create_subprocess_exec(*words, **options)
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        self._outputs = asyncio.Queue(64)
        report = os.fdopen(invocation.report, "rb", 0)
        self._pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), report)
        self._tasks = [asyncio.ensure_future(self._read_report(reader)), asyncio.ensure_future(self._read_streams())]
        if self._process.stdin:
            self._tasks.append(asyncio.ensure_future(self._write(self._process.stdin)))
        if invocation.questions and self._on_ask:
            self._answers = await AsyncAnswers.of_socket(invocation.questions, self._on_ask)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[Output]:
        return self

    async def __anext__(self) -> Output:
        if self._outputs is None:
            raise NoReport("the stream was not entered by `async with`")
        output = await self._outputs.get()
        if output is None:
            self._outputs.put_nowait(None)
            raise StopAsyncIteration
        return output

    async def report(self) -> Report:
        """Reads what is left of the output, and returns the report."""
        async for _ in self:
            pass
        assert self._process
        await asyncio.gather(*self._tasks)
        status = await self._process.wait()
        if self._answers and self._answers.error:
            raise self._answers.error
        return self._invocation.ended(status)

    async def close(self) -> None:
        """Ends the command and everything it started, if it still runs."""
        if self._process and self._process.returncode is None:
            try:
                # When gatekeeper dies, its guardian ends everything it started.
                self._process.kill()
            except ProcessLookupError:
                pass
            await self._process.wait()
        if self._answers:
            await self._answers.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._pipe:
            self._pipe.close()

    async def _read_report(self, reader: asyncio.StreamReader) -> None:
        self._invocation.document = await reader.read()

    async def _read_streams(self) -> None:
        assert self._process and self._outputs
        pipes = [("stdout", self._process.stdout), ("stderr", self._process.stderr)]
        try:
            await asyncio.gather(*(self._read(name, pipe) for name, pipe in pipes if pipe))
        finally:
            await self._outputs.put(None)

    async def _read(self, name: str, pipe: asyncio.StreamReader) -> None:
        while True:
            chunk = await pipe.read(65536)
            if not chunk:
                return
            output = self._invocation.output(name, chunk)
            if output and self._outputs:
                # A full queue makes the command wait for its reader.
                await self._outputs.put(output)

    async def _write(self, pipe: asyncio.StreamWriter) -> None:
        try:
            pipe.write(self._invocation.input)
            await pipe.drain()
        except (BrokenPipeError, ConnectionResetError):
            pass  # The command may end without having read all of it.
        finally:
            pipe.close()


class AsyncStage:
    """The changes of the runs with `stage=name`, as Stage."""

    def __init__(self, program: str, name: str) -> None:
        self.name = name
        self._program = program

    async def diff(self) -> list[Change]:
        return parse_changes(await self._call(["diff", "--json", "--", self.name], may_be_one=True))

    async def patch(self) -> str:
        return (await self._call(["diff", "--", self.name], may_be_one=True)).decode(errors="surrogateescape")

    async def apply(self, paths: Sequence[str] = (), *, protected: str = "refuse") -> None:
        await self._call(["apply", f"--protected={protected}", "--", self.name, *paths])

    async def discard(self) -> None:
        await self._call(["discard", "--", self.name])

    async def _call(self, words: Sequence[str], may_be_one: bool = False) -> bytes:
        pipe = subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                *stage_words(self._program, words), stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe
            )
        except OSError as error:
            raise ProgramMissing(str(error)) from error
        stdout, stderr = await process.communicate()
        assert process.returncode is not None
        return judge(process.returncode, stdout, stderr, may_be_one)
