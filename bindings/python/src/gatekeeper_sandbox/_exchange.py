"""One run of a server, without the transport: the lines to send, and what the answers mean."""

from __future__ import annotations

import json
from typing import Any, Mapping, Optional, Sequence, Union

from . import _words
from ._errors import NoReport
from ._invocation import How
from ._report import Output, Report, stream_bytes
from ._words import Command


# The longest line that the server reads.
_LONGEST = 16 << 20


def unread(answer: Mapping[str, Any]) -> str:
    """Why a server is of no more use that answers without the id of a run: some run will never be answered."""
    return f"the server could not read an order, and was ended: {answer.get('error')}"


class Exchange:
    """A run from its order to its report."""

    def __init__(
        self, identity: int, settings: Sequence[str], command: Command, how: How, *, streams: bool, asks: bool
    ) -> None:
        self.identity = identity
        self.report: Optional[Report] = None
        flags = _words.policy_flags(None, None, how.timeout, None, how.stage, [*settings, *how.flags])
        what = {"line": command} if isinstance(command, str) else {"argv": list(command)}
        rest = {"cwd": how.cwd, "env": dict(how.env), "stdin": _text(how.input), "stream": streams, "ask": asks}
        self.order = self._line({**what, "flags": flags, **{key: value for key, value in rest.items() if value}})
        self.cancellation = self._line({"cancel": True})

    def answer(self, question: object, decision: str) -> bytes:
        return self._line({"answer": {"id": question, "decision": decision}})

    def take(self, answer: Mapping[str, Any]) -> list[Output]:
        """The output in an answer; the last answer sets the report. Raises NoReport if nothing was run."""
        if "error" in answer:
            raise NoReport(str(answer["error"]))
        if "report" in answer:
            self.report = Report.parse(answer["report"])
        return [Output(name, stream_bytes(answer, name)) for name in ("stdout", "stderr") if name in answer]

    def _line(self, order: Mapping[str, Any]) -> bytes:
        try:
            line = json.dumps({"id": self.identity, **order}, ensure_ascii=False).encode() + b"\n"
        except UnicodeEncodeError as error:
            raise ValueError("a server takes UTF-8 only; use Gatekeeper.run for other names and arguments") from error
        if len(line) > _LONGEST:
            raise ValueError(f"a server takes {_LONGEST} bytes for one run at most; use Gatekeeper.run for more input")
        return line


def _text(input: Union[str, bytes]) -> str:
    """The server takes text alone."""
    try:
        return input if isinstance(input, str) else input.decode()
    except UnicodeDecodeError as error:
        raise ValueError("input: a server takes UTF-8 only; use Gatekeeper.run for other bytes") from error
