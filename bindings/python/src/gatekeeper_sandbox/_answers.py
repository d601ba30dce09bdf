"""Decides the questions of a run by the caller's function, for `gatekeeper run` and for the server."""

from __future__ import annotations

import asyncio
import json
import queue
import socket
import threading
from typing import Any, Awaitable, Callable, Iterable, Mapping, Optional

from . import _words
from ._report import Question

# Returns "once", "run" or "deny". It is called on another thread while the call waits.
OnAsk = Callable[[Question], str]
AsyncOnAsk = Callable[[Question], Awaitable[str]]
_Raw = Mapping[str, Any]
_LINE = 16 << 20


class Answers:
    """Decides on a thread, one question after another. If the function raises, that question and all later ones are denied."""

    def __init__(self, questions: Iterable[_Raw], on_ask: OnAsk, send: Callable[[object, str], None]) -> None:
        self.error: Optional[BaseException] = None
        self._questions, self._on_ask, self._send = questions, on_ask, send
        threading.Thread(target=self._serve, name="gatekeeper-ask", daemon=True).start()

    def _serve(self) -> None:
        for raw in self._questions:
            if not raw.get("withdrawn"):
                self._send(raw["id"], self._decide(raw))

    def _decide(self, raw: _Raw) -> str:
        if self.error is None:
            try:
                return _words.decision(self._on_ask(Question.parse(raw)))
            except BaseException as error:
                self.error = error
        return "deny"


def of_socket(ours: socket.socket, on_ask: OnAsk) -> Answers:
    """Answers the questions of `--ask-fd` until gatekeeper ends."""

    def questions() -> Iterable[_Raw]:
        with ours, ours.makefile("rb") as lines:
            try:
                for line in lines:
                    yield json.loads(line)
            except ConnectionResetError:
                pass

    def send(identity: object, decision: str) -> None:
        try:
            ours.sendall(_words.answer(identity, decision))
        except (BrokenPipeError, ConnectionResetError):
            pass  # The run has ended while the function decided.

    return Answers(questions(), on_ask, send)


class QueuedAnswers:
    """Answers the questions of one run of a server. The thread starts with the first of them."""

    def __init__(self, on_ask: OnAsk, send: Callable[[object, str], None]) -> None:
        self._on_ask, self._send = on_ask, send
        self._questions: queue.SimpleQueue[Optional[_Raw]] = queue.SimpleQueue()
        self._answers: Optional[Answers] = None

    @property
    def error(self) -> Optional[BaseException]:
        return self._answers.error if self._answers else None

    def take(self, raw: _Raw) -> None:
        if self._answers is None:
            self._answers = Answers(iter(self._questions.get, None), self._on_ask, self._send)
        self._questions.put(raw)

    def close(self) -> None:
        self._questions.put(None)


class AsyncAnswers:
    """Decides questions side by side. If the function raises, that question and all later ones are denied."""

    def __init__(self, on_ask: AsyncOnAsk, send: Callable[[object, str], Awaitable[None]]) -> None:
        self.error: Optional[BaseException] = None
        self._on_ask, self._send = on_ask, send
        self._tasks: set[asyncio.Task[None]] = set()
        self._writer: Optional[asyncio.StreamWriter] = None

    @staticmethod
    async def of_socket(ours: socket.socket, on_ask: AsyncOnAsk) -> AsyncAnswers:
        """Answers the questions of `--ask-fd` until gatekeeper ends."""
        reader, writer = await asyncio.open_connection(sock=ours, limit=_LINE)

        async def send(identity: object, decision: str) -> None:
            writer.write(_words.answer(identity, decision))
            await writer.drain()

        async def read() -> None:
            async for line in reader:
                answers.take(json.loads(line))

        answers = AsyncAnswers(on_ask, send)
        answers._writer = writer
        answers._start(read())
        return answers

    def take(self, raw: _Raw) -> None:
        if not raw.get("withdrawn"):
            self._start(self._answer(raw))

    async def close(self) -> None:
        """Stops deciding. gatekeeper has ended, or denies what is still open."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._writer:
            self._writer.close()

    def _start(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        # The run may end while the function decides.
        if error and not isinstance(error, (BrokenPipeError, ConnectionResetError)):
            self.error = self.error or error

    async def _answer(self, raw: _Raw) -> None:
        decision = "deny"
        if self.error is None:
            try:
                decision = _words.decision(await self._on_ask(Question.parse(raw)))
            except Exception as error:
                self.error = self.error or error
        await self._send(raw["id"], decision)
