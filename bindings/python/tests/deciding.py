"""A callback for questions, shared by the tests of runs and of the server."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

from gatekeeper_sandbox import Question


class Decider:
    """Decides as it is told, or raises ZeroDivisionError, and keeps what it was asked."""

    def __init__(self, decision: Optional[str]) -> None:
        self.decision = decision
        self.asked: list[Question] = []

    def __call__(self, question: Question) -> str:
        self.asked.append(question)
        if self.decision is None:
            raise ZeroDivisionError
        return self.decision

    def check(self, new: Path) -> None:
        """It was asked about `touch new`, and the file is there if it allowed that."""
        assert new.exists() == (self.decision in ("once", "run"))
        first = self.asked[0]
        assert (first.kind, first.access, first.path, first.comm) == ("path", "write", str(new.resolve()), "touch")
