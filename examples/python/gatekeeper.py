"""Runs commands confined by gatekeeper, and gives its report as values. Python 3.9 or newer, nothing else.

    from gatekeeper import Gatekeeper

    report = Gatekeeper().run(["touch", "new"], timeout=10)
    for denial in report.denials:
        print(denial.syscall, denial.path, denial.allow_with)

The one rule: whatever goes wrong, the command does not run unconfined. Without a report there is a GatekeeperError.
"""

from __future__ import annotations

import json
import os
import selectors
import shlex
import shutil
import subprocess
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Optional, Sequence, Union

__all__ = ["Denial", "Gatekeeper", "GatekeeperError", "Report"]

Output = Callable[[str, bytes], None]


class GatekeeperError(Exception):
    """gatekeeper gave no report: it is missing, its flags are wrong, or it was killed."""


@dataclass(frozen=True)
class Denial:
    layer: str
    syscall: str
    rule: str
    path: Optional[str]
    host: Optional[str]
    count: int
    # Flags of `gatekeeper run`, quoted for a shell. Paths in it may be chosen by the command: split it, never paste it.
    allow_with: Optional[str]

    @property
    def grant(self) -> list[str]:
        """The same as words; empty where nothing would allow it."""
        return shlex.split(self.allow_with) if self.allow_with else []


@dataclass(frozen=True)
class Report:
    outcome: str  # exited, signaled, timeout, limit, refused, setup_failed, not_found
    exit_code: int
    signal: Optional[int]
    duration_ms: int
    error: Optional[str]
    denials: tuple[Denial, ...]
    # Everything, as gatekeeper wrote it.
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
            raise ValueError(f"a report of schema {raw.get('schema')}; this reads 1")
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
    """A way to run commands: the program, and flags that every run gets, such as ["--profile", "write"]."""

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
    ) -> Report:
        """Runs words, or a line for sh. on_output gets ("stdout" or "stderr", bytes) as they come."""
        ending, told = os.pipe()
        # Before the flags: whatever those are, there is a report.
        words = [self.program, "run", "--quiet", "--report-fd", str(told)]
        if timeout is not None:
            words += ["--timeout", f"{max(1, round(timeout * 1000))}ms"]
        words += [*self.flags, *flags]
        try:
            words += ["-c", command] if isinstance(command, str) else ["--", *command]
            process = subprocess.Popen(
                words,
                cwd=cwd,
                stdin=subprocess.PIPE if input else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[told],
            )
        except OSError as error:
            os.close(ending)
            raise GatekeeperError(str(error)) from error
        finally:
            os.close(told)
        try:
            report, said = _follow(process, ending, input, on_output)
        except BaseException:
            # gatekeeper gone, its guardian ends everything that it started.
            process.kill()
            raise
        finally:
            os.close(ending)
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream:
                    stream.close()
            process.wait()
        if not report:
            raise GatekeeperError(f"no report, status {process.returncode}: {said.decode(errors='replace').strip()}")
        return Report.parse(report)

    def run_asking(
        self, command: Union[str, Sequence[str]], ask: Callable[[Denial], bool], *, most: int = 4, **how: Any
    ) -> Report:
        """Runs it; where it failed for want of a grant, asks for that grant, and runs it again with it."""
        granted: list[str] = list(how.pop("flags", ()))
        while True:
            report = self.run(command, flags=granted, **how)
            denial = next((denial for denial in report.denials if denial.allow_with), None)
            if report.exit_code == 0 or report.outcome != "exited" or denial is None or most == 0 or not ask(denial):
                return report
            granted += denial.grant
            most -= 1


def _follow(
    process: "subprocess.Popen[bytes]", ending: int, input: bytes, on_output: Optional[Output]
) -> tuple[bytes, bytes]:
    """Reads the report and both streams, and writes the input, none of which may wait for another."""
    assert process.stdout and process.stderr
    report, said, left = b"", b"", memoryview(input)
    with selectors.DefaultSelector() as waiting:
        waiting.register(ending, selectors.EVENT_READ, "report")
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
                        said = (said + chunk)[-4096:]
                    if on_output:
                        on_output(key.data, chunk)
    return report, said
