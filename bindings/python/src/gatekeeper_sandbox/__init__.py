"""Runs commands confined by gatekeeper, and returns its report: how the command ended, what was denied, and what would allow it.

    from gatekeeper_sandbox import Gatekeeper

    report = Gatekeeper(profile="write").run(["git", "status"], timeout=10)
    print(report.text, report.denials)

A command never runs unconfined: if the sandbox cannot be set up, the command does not run, and if there is no report, an exception is
raised. AsyncGatekeeper is the same for asyncio.
"""

from ._aio import AsyncGatekeeper, AsyncStage, AsyncStream
from ._answers import AsyncOnAsk, OnAsk
from ._aserver import AsyncServer, AsyncServerStream
from ._errors import (
    CommandFailed,
    CommandKilled,
    CommandNotFound,
    GatekeeperError,
    LimitReached,
    NoReport,
    NotRun,
    ProgramMissing,
    Refused,
    RunFailed,
    ServerGone,
    SetupFailed,
    StageConflict,
    StageError,
    TimedOut,
)
from ._report import Change, Denial, Layer, Output, Question, Report
from ._server import Server, ServerStream
from ._stage import Stage
from ._sync import Gatekeeper, OnOutput, Stream
from ._words import Command, Input, find_program

__all__ = [
    "AsyncGatekeeper", "AsyncOnAsk", "AsyncServer", "AsyncServerStream", "AsyncStage", "AsyncStream", "Change", "Command", "CommandFailed",
    "CommandKilled", "CommandNotFound", "Denial", "Gatekeeper", "GatekeeperError", "Input", "Layer", "LimitReached", "NoReport", "NotRun", "OnAsk",
    "OnOutput", "Output", "ProgramMissing", "Question", "Refused", "Report", "RunFailed", "Server", "ServerGone", "ServerStream",
    "SetupFailed", "Stage", "StageConflict", "StageError", "Stream", "TimedOut", "find_program",
]  # fmt: skip
