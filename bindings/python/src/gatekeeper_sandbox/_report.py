"""The report of a run, and what it consists of. Bytes in, values out; nothing here starts a process."""

from __future__ import annotations

import base64
import json
import shlex
from dataclasses import dataclass, field
from typing import Any, Mapping, Optional, Union

from . import _errors as errors

_FAILURES: Mapping[str, type[errors.RunFailed]] = {
    "exited": errors.CommandFailed,
    "signaled": errors.CommandKilled,
    "timeout": errors.TimedOut,
    "limit": errors.LimitReached,
    "refused": errors.Refused,
    "setup_failed": errors.SetupFailed,
    "not_found": errors.CommandNotFound,
}


@dataclass(frozen=True)
class Denial:
    """Something that was denied; equal ones are counted."""

    layer: str
    syscall: str
    rule: str
    path: Optional[str]
    host: Optional[str]
    count: int
    # Flags for another run, quoted for a shell. The confined command may have chosen a path in them: use `grant`, never paste.
    allow_with: Optional[str]

    @property
    def grant(self) -> list[str]:
        """`allow_with` as words for `flags`; empty if no flag would allow it."""
        return shlex.split(self.allow_with) if self.allow_with else []


@dataclass(frozen=True)
class Layer:
    """What one layer enforced: status is enforced, partial, unavailable or off."""

    layer: str
    status: str
    detail: str


@dataclass(frozen=True)
class Question:
    """A refused call that waits for a decision. Its texts come from the confined program: escape them before you print them."""

    kind: str  # path, host or socket
    access: str  # read, write or connect
    syscall: str
    path: Optional[str]
    host: Optional[str]
    comm: str
    pid: int
    argv: tuple[str, ...]
    allow_with: Optional[str]
    rule: str
    raw: Mapping[str, Any] = field(repr=False)

    @staticmethod
    def parse(raw: Mapping[str, Any]) -> Question:
        return Question(
            kind=raw["kind"],
            access=raw["access"],
            syscall=raw["syscall"],
            path=raw["path"],
            host=raw["host"],
            comm=raw["comm"],
            pid=raw["pid"],
            argv=tuple(raw["argv"]),
            allow_with=raw["allow_with"],
            rule=raw.get("rule", ""),
            raw=raw,
        )


@dataclass(frozen=True)
class Change:
    """One change that waits in a stage."""

    path: str
    change: str  # added, modified, deleted, mode or type
    kind: str  # file, dir or symlink
    size: Optional[int]
    sha256: Optional[str]

    @staticmethod
    def parse(raw: Mapping[str, Any]) -> Change:
        return Change(raw["path"], raw["change"], raw["kind"], raw["size"], raw["sha256"])


@dataclass(frozen=True)
class Output:
    """A part of the command's output."""

    stream: str  # stdout or stderr
    data: bytes

    @property
    def text(self) -> str:
        return self.data.decode(errors="replace")


@dataclass(frozen=True)
class Report:
    """How a command ended, and what was denied."""

    outcome: str  # exited, signaled, timeout, limit, refused, setup_failed or not_found
    exit_code: int
    signal: Optional[int]
    duration_ms: int
    error: Optional[str]
    denials: tuple[Denial, ...]
    layers: tuple[Layer, ...]
    # The captured output, its beginning and its end. Empty for a run that streams.
    stdout: bytes = field(repr=False)
    stderr: bytes = field(repr=False)
    # The whole document as gatekeeper wrote it.
    raw: Mapping[str, Any] = field(repr=False)

    @property
    def ok(self) -> bool:
        return self.outcome == "exited" and self.exit_code == 0

    @property
    def ran(self) -> bool:
        """Whether the command was started."""
        return self.outcome not in ("refused", "setup_failed", "not_found")

    @property
    def text(self) -> str:
        """The captured standard output as text."""
        return self.stdout.decode(errors="replace")

    @property
    def summary(self) -> str:
        """One line: the outcome and the first denial."""
        words = f"{self.outcome}, exit status {self.exit_code}"
        if self.error:
            words += f": {self.error}"
        if self.denials:
            first = self.denials[0]
            words += f"; denied: {first.syscall} {first.path or first.host or ''}".rstrip() + f" ({first.rule})"
        return words

    def check(self) -> Report:
        """Returns the report of a command that exited with 0; raises the RunFailed of its outcome otherwise."""
        if not self.ok:
            raise _FAILURES.get(self.outcome, errors.RunFailed)(self)
        return self

    @staticmethod
    def parse(document: Union[str, bytes, Mapping[str, Any]]) -> Report:
        try:
            raw = json.loads(document) if isinstance(document, (str, bytes)) else document
        except ValueError as error:
            raise errors.NoReport(f"the report is not JSON: {error}") from error
        if raw.get("schema") != 1:
            raise errors.NoReport(f"unsupported report schema {raw.get('schema')}, expected 1")
        denied = ("layer", "syscall", "rule", "path", "host", "count", "allow_with")
        return Report(
            outcome=raw["outcome"],
            exit_code=raw["exit_code"],
            signal=raw["signal"],
            duration_ms=raw["duration_ms"],
            error=raw.get("error"),
            denials=tuple(Denial(**{name: each[name] for name in denied}) for each in raw["denials"]),
            layers=tuple(Layer(each["layer"], each["status"], each["detail"]) for each in raw["layers"]),
            stdout=stream_bytes(raw, "stdout"),
            stderr=stream_bytes(raw, "stderr"),
            raw=raw,
        )


def stream_bytes(raw: Mapping[str, Any], name: str) -> bytes:
    """The bytes of a stream in a report, or in an answer of the server: base64 if they are no UTF-8, else text."""
    exact = raw.get(f"{name}_base64")
    if isinstance(exact, str):
        return base64.b64decode(exact)
    text = raw.get(name)
    return text.encode(errors="surrogatepass") if isinstance(text, str) else b""
