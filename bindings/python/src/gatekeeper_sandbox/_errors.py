"""What can go wrong, as exceptions. All derive from GatekeeperError."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._report import Report


class GatekeeperError(Exception):
    """The base of every exception of this package."""


class ProgramMissing(GatekeeperError):
    """There is no gatekeeper program to run. Nothing was run."""


class NoReport(GatekeeperError):
    """gatekeeper wrote no report: its flags are wrong, or it was killed. After wrong flags, nothing was run."""


class ServerGone(NoReport):
    """The server has ended, or was closed, before it answered. Everything that it ran has ended too."""


class StageError(GatekeeperError):
    """A stage cannot be read, applied or discarded."""


class StageConflict(StageError):
    """Files changed in the real tree meanwhile. Nothing was applied; the message names each of them."""


class RunFailed(GatekeeperError):
    """A run did not exit with 0. Raised by Report.check()."""

    def __init__(self, report: Report) -> None:
        super().__init__(report.summary)
        self.report = report


class CommandFailed(RunFailed):
    """The command exited with another status than 0."""


class CommandKilled(RunFailed):
    """A signal killed the command; SIGSYS for a denied call, if the policy says kill."""


class TimedOut(RunFailed):
    """The time limit ended the command and everything it started."""


class LimitReached(RunFailed):
    """Another limit ended the command; Report.raw["limit"] names it."""


class NotRun(RunFailed):
    """Nothing was run."""


class Refused(NotRun):
    """The policy, or the check of the program, forbids the command."""


class SetupFailed(NotRun):
    """The sandbox could not be set up. Report.error names the step; `gatekeeper doctor` prints the fix."""


class CommandNotFound(NotRun):
    """There is no such command."""
