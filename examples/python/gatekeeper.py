"""Runs commands confined by gatekeeper and returns its report. Needs Python 3.9 or newer and no packages.

    from gatekeeper import Gatekeeper

    report = Gatekeeper().run(["touch", "new"], timeout=10)
    for denial in report.denials:
        print(denial.syscall, denial.path, denial.allow_with)

A command never runs unconfined: if there is no report, GatekeeperError is raised.
"""

from __future__ import annotations

import json
import os
import selectors
import shlex
import shutil
import socket
import subprocess
import threading
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Optional, Sequence, Union

__all__ = ["Denial", "Gatekeeper", "GatekeeperError", "Report"]

Output = Callable[[str, bytes], None]
# Gets a question (docs/guide/ask.md), returns "once", "run" or "deny".
Ask = Callable[[Mapping[str, Any]], str]


class GatekeeperError(Exception):
    """gatekeeper wrote no report: it is missing, its flags are wrong, or it was killed."""


@dataclass(frozen=True)
class Denial:
    layer: str
    syscall: str
    rule: str
    path: Optional[str]
    host: Optional[str]
    count: int
    # Flags for `gatekeeper run`, quoted for a shell. The confined command may have chosen a path in them: split, never paste.
    allow_with: Optional[str]

    @property
    def grant(self) -> list[str]:
        """`allow_with` as words; empty if no flag would allow it."""
        return shlex.split(self.allow_with) if self.allow_with else []


@dataclass(frozen=True)
class Report:
    outcome: str  # exited, signaled, timeout, limit, refused, setup_failed, not_found
    exit_code: int
    signal: Optional[int]
    duration_ms: int
    error: Optional[str]
    denials: tuple[Denial, ...]
    # The whole document as gatekeeper wrote it.
    raw: Mapping[str, Any] = field(repr=False)

    @property
    def ok(self) -> bool:
        return self.outcome == "exited" and self.exit_code == 0

    @property
    def ran(self) -> bool:
        return self.outcome not in ("refused", "setup_failed", "not_found")

    @staticmethod
    def parse(text: Union[str, bytes]) -> "Report":
        raw = json.loads(text)
        if raw.get("schema") != 1:
            raise ValueError(f"unsupported report schema {raw.get('schema')}, expected 1")
        known = ("layer", "syscall", "rule", "path", "host", "count", "allow_with")
        denials = tuple(Denial(**{name: denial[name] for name in known}) for denial in raw["denials"])
        return Report(
            outcome=raw["outcome"],
            exit_code=raw["exit_code"],
            signal=raw["signal"],
            duration_ms=raw["duration_ms"],
            error=raw.get("error"),
            denials=denials,
            raw=raw,
        )


class Gatekeeper:
    """Runs commands with one gatekeeper program and flags for every run, such as ["--profile", "write"]."""

    def __init__(self, program: Optional[str] = None, flags: Sequence[str] = ()) -> None:
        found = shutil.which(program or os.environ.get("GATEKEEPER", "gatekeeper"))
        if found is None:
            raise GatekeeperError("gatekeeper is not on PATH")
        self.program = found
        self.flags = tuple(flags)

    def run(
        self,
        command: Union[str, Sequence[str]],
        *,
        flags: Sequence[str] = (),
        timeout: Optional[float] = None,
        input: bytes = b"",
        cwd: Optional[str] = None,
        on_output: Optional[Output] = None,
        on_ask: Optional[Ask] = None,
    ) -> Report:
        """Runs a command given as words, or a line with sh. on_output receives ("stdout" or "stderr", bytes) as they arrive.
        on_ask decides about each refused path, host and UNIX socket, on another thread, while the call waits."""
        report_read, report_write = os.pipe()
        # Before the caller's flags, so that there is a report whatever they contain.
        words = [self.program, "run", "--quiet", "--report-fd", str(report_write)]
        if timeout is not None:
            words += ["--timeout", f"{max(1, round(timeout * 1000))}ms"]
        words += [*self.flags, *flags]
        ours, theirs = socket.socketpair() if on_ask else (None, None)
        if theirs:
            words += ["--ask-fd", str(theirs.fileno())]
        try:
            words += ["-c", command] if isinstance(command, str) else ["--", *command]
            process = subprocess.Popen(
                words,
                cwd=cwd,
                stdin=subprocess.PIPE if input else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[report_write, *([theirs.fileno()] if theirs else [])],
            )
        except OSError as error:
            os.close(report_read)
            raise GatekeeperError(str(error)) from error
        finally:
            os.close(report_write)
            if theirs:
                theirs.close()
        if ours and on_ask:
            threading.Thread(target=_answer, args=(ours, on_ask), daemon=True).start()
        try:
            report, messages = _follow(process, report_read, input, on_output)
        except BaseException:
            # When gatekeeper dies, its guardian ends everything it started.
            process.kill()
            raise
        finally:
            os.close(report_read)
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream:
                    stream.close()
            process.wait()
        if not report:
            raise GatekeeperError(f"no report, status {process.returncode}: {messages.decode(errors='replace').strip()}")
        return Report.parse(report)

    def run_asking(
        self, command: Union[str, Sequence[str]], ask: Callable[[Denial], bool], *, most: int = 4, **how: Any
    ) -> Report:
        """Runs a command. If it failed for a denial, calls ask and, on a yes, runs it again with the grant."""
        granted: list[str] = list(how.pop("flags", ()))
        while True:
            report = self.run(command, flags=granted, **how)
            denial = next((denial for denial in report.denials if denial.allow_with), None)
            if report.exit_code == 0 or report.outcome != "exited" or denial is None or most == 0 or not ask(denial):
                return report
            granted += denial.grant
            most -= 1


def _answer(questions: socket.socket, on_ask: Ask) -> None:
    """Answers until gatekeeper ends. What raises closes the socket, and everything is denied."""
    with questions, questions.makefile("rw", encoding="utf-8") as lines:
        for line in lines:
            question = json.loads(line)
            if not question.get("withdrawn"):
                lines.write(json.dumps({"id": question["id"], "decision": on_ask(question)}) + "\n")
                lines.flush()


def _follow(
    process: "subprocess.Popen[bytes]", report_read: int, input: bytes, on_output: Optional[Output]
) -> tuple[bytes, bytes]:
    """Reads the report and both streams and writes the input, all at once, so that none blocks another."""
    assert process.stdout and process.stderr
    report, messages, left = b"", b"", memoryview(input)
    with selectors.DefaultSelector() as waiting:
        waiting.register(report_read, selectors.EVENT_READ, "report")
        waiting.register(process.stdout, selectors.EVENT_READ, "stdout")
        waiting.register(process.stderr, selectors.EVENT_READ, "stderr")
        if process.stdin:
            os.set_blocking(process.stdin.fileno(), False)
            waiting.register(process.stdin, selectors.EVENT_WRITE, "stdin")
        while waiting.get_map():
            for key, _ in waiting.select():
                if key.data == "stdin":
                    try:
                        left = left[os.write(key.fd, left) :]
                    except BrokenPipeError:
                        left = left[len(left) :]
                    if not left:
                        waiting.unregister(key.fileobj)
                        assert process.stdin
                        process.stdin.close()
                    continue
                chunk = os.read(key.fd, 65536)
                if not chunk:
                    waiting.unregister(key.fileobj)
                elif key.data == "report":
                    report += chunk
                else:
                    if key.data == "stderr":
                        messages = (messages + chunk)[-4096:]
                    if on_output:
                        on_output(key.data, chunk)
    return report, messages
