"""Stages: what a run changed, and waits to be applied."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Sequence

from ._errors import ProgramMissing, StageConflict, StageError
from ._report import Change


class Stage:
    """The changes of the runs with `stage=name`. Nothing of them is in the real tree before apply()."""

    def __init__(self, program: str, name: str) -> None:
        self.name = name
        self._program = program

    def diff(self) -> list[Change]:
        """Every change, sorted by path."""
        return parse_changes(self._call(["diff", "--json", "--", self.name], may_be_one=True))

    def patch(self) -> str:
        """The changes as a patch for `git apply` and `patch -p1`."""
        return self._call(["diff", "--", self.name], may_be_one=True).decode(errors="surrogateescape")

    def apply(self, paths: Sequence[str] = (), *, protected: str = "refuse") -> None:
        """Takes all changes, or those at and below paths, into the real tree. Raises StageConflict, and changes nothing, if files changed
        there meanwhile. protected says what happens to files that decide what other programs run: refuse, skip or take."""
        self._call(["apply", f"--protected={protected}", "--", self.name, *paths])

    def discard(self) -> None:
        """Throws the changes away."""
        self._call(["discard", "--", self.name])

    def _call(self, words: Sequence[str], may_be_one: bool = False) -> bytes:
        try:
            done = subprocess.run(stage_words(self._program, words), stdin=subprocess.DEVNULL, capture_output=True)
        except OSError as error:
            raise ProgramMissing(str(error)) from error
        return judge(done.returncode, done.stdout, done.stderr, may_be_one)


def stage_words(program: str, words: Sequence[str]) -> list[str]:
    return [program, "stage", *words]


def parse_changes(document: bytes) -> list[Change]:
    return [Change.parse(each) for each in json.loads(document)]


def judge(status: int, stdout: bytes, stderr: bytes, may_be_one: bool) -> bytes:
    """The output, or the error that the exit status means: 1 is "there are changes" for diff, and a conflict for apply."""
    if status == 0 or (status == 1 and may_be_one):
        return stdout
    text = os.fsdecode(stderr).strip() or f"status {status}"
    raise StageConflict(text) if status == 1 else StageError(text)
