"""Command lines of gatekeeper from the arguments of a call, and answers for `--ask-fd`."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import sysconfig
from pathlib import Path
from typing import Iterable, Mapping, Optional, Sequence, Union

from ._errors import GatekeeperError, ProgramMissing

Command = Union[str, Sequence[str]]
Input = Union[str, bytes]
DECISIONS = ("once", "run", "deny")


def find_program(named: Optional[str]) -> str:
    """The gatekeeper program: the named one, else that of the variable GATEKEEPER, else the carried one, else that on PATH."""
    asked = named or os.environ.get("GATEKEEPER")
    if asked:
        found = shutil.which(asked)
        if found is None:
            raise ProgramMissing(f"{asked}: no such program")
        return os.path.abspath(found)
    for place in _carried():
        if os.access(place, os.X_OK) and place.is_file():
            return str(place)
    found = shutil.which("gatekeeper")
    if found is None:
        raise ProgramMissing("this installation carries no gatekeeper program, and there is none on PATH")
    return os.path.abspath(found)


def _carried() -> Iterable[Path]:
    """Where the installer may have put the program of the wheel."""
    try:
        files = importlib.metadata.files("gatekeeper-sandbox") or []
    except importlib.metadata.PackageNotFoundError:
        return
    named = [Path(str(file.locate())).resolve() for file in files if file.name == "gatekeeper"]
    if not any("bin" in path.parts for path in named):
        # An editable installation carries none; a program elsewhere is then not ours.
        return
    yield from named
    # pip install --target moves the program and leaves the old place in its list.
    yield Path(__file__).resolve().parent.parent / "bin" / "gatekeeper"
    yield Path(sysconfig.get_path("scripts")) / "gatekeeper"


def policy_flags(
    profile: Union[str, Sequence[str], None],
    net: Optional[str],
    timeout: Optional[float],
    cwd: Optional[str],
    stage: Optional[str],
    flags: Sequence[str],
) -> list[str]:
    """Flags in the order in which gatekeeper takes them; the caller's own come last."""
    words: list[str] = []
    for each in [profile] if isinstance(profile, str) else profile or []:
        words += ["--profile", each]
    for name, value in (("--net", net), ("--cwd", cwd), ("--stage", stage)):
        if value is not None:
            words.append(f"{name}={value}")
    if timeout is not None:
        if not timeout > 0:
            raise ValueError("timeout: more than 0 seconds are needed")
        words += ["--timeout", f"{max(1, round(timeout * 1000))}ms"]
    return [*words, *flags]


def command_words(command: Command) -> list[str]:
    """The end of the command line: a line for sh, or the words of the command."""
    if isinstance(command, str):
        # In one word, so that a line that begins with a dash is no flag.
        return [f"-c={command}"]
    if not command:
        raise ValueError("command: it has no words")
    return ["--", *command]


def variables(given: Mapping[str, str]) -> bytes:
    """What `--env-fd` reads. Not flags, because every user can read the command line of a process; and not gatekeeper's own
    environment, because gatekeeper finds the caller's credentials by it."""
    words = b""
    for name, value in given.items():
        if not name or "=" in name or "\0" in name + value:
            raise ValueError(f"env: {name!r} is no name of a variable, or its value has a NUL")
        try:
            words += f"{name}={value}\0".encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"env: {name!r} or its value is no UTF-8") from error
    return words


def decision(given: str) -> str:
    """A decision that gatekeeper knows."""
    if given not in DECISIONS:
        raise GatekeeperError(f"{given!r} is no decision; use one of {', '.join(DECISIONS)}")
    return given


def answer(identity: object, decision: str) -> bytes:
    """A line for `--ask-fd`."""
    return json.dumps({"id": identity, "decision": decision}).encode() + b"\n"
