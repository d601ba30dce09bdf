#!/usr/bin/env python3
"""An exec tool: exec_tool.py [--yes] [--timeout SECONDS] [--ask] [--stage NAME] LINE

Runs LINE confined and streams its output. If something was denied, it asks on the terminal whether to grant it and runs the line
again; without a terminal it grants only with --yes. With --ask, a refused call waits for the answer instead, and the line runs once.
With --stage, changes of the working directory wait in a stage: they are shown, and applied after a yes. Needs the package gatekeeper-sandbox (bindings/python). The variable GATEKEEPER names another gatekeeper program."""

import argparse
import sys

from gatekeeper_sandbox import Denial, Gatekeeper, Output, Question


def main() -> int:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--yes", action="store_true")
    arguments.add_argument("--timeout", type=float, default=60)
    arguments.add_argument("--ask", action="store_true")
    arguments.add_argument("--stage")
    arguments.add_argument("line")
    given = arguments.parse_args()

    def show(output: Output) -> None:
        if output.stream == "stdout":
            print("".join(f"| {line}\n" for line in output.text.splitlines()), end="", flush=True)
        else:
            print(output.text, end="", file=sys.stderr, flush=True)

    def agreed(prompt: str) -> bool:
        if given.yes or not sys.stdin.isatty():
            return bool(given.yes)
        return input(f"{prompt} [y/N] ").strip().lower() in ("y", "yes")

    def grant(denial: Denial) -> bool:
        print(f"denied; to be granted: {denial.allow_with}", flush=True)
        return agreed("grant it, and run the line again?")

    def decide(question: Question) -> str:
        # The path is the program's own text: repr escapes what a terminal would obey.
        print(f"{question.comm!r} wants to {question.access} {question.path or question.host!r}", flush=True)
        return "once" if agreed("allow it?") else "deny"

    keeper = Gatekeeper(profile="write" if given.stage else None)
    if given.ask:
        report = keeper.run(given.line, timeout=given.timeout, stage=given.stage, on_output=show, on_ask=decide)
    else:
        report = keeper.run_asking(given.line, grant, timeout=given.timeout, stage=given.stage, on_output=show)
    if given.stage and report.ran:
        stage = keeper.stage(given.stage)
        print(stage.patch(), end="", flush=True)
        if stage.diff() and agreed("apply these changes?"):
            stage.apply()
            print("applied")
    print(report.outcome, report.exit_code)
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
