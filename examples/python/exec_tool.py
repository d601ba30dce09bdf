#!/usr/bin/env python3
"""An exec tool: exec_tool.py [--yes] [--timeout SECONDS] [--stage NAME] LINE

Runs LINE confined and streams its output. If something was denied, it asks on the terminal whether to grant it and runs the line
again; without a terminal it grants only with --yes. With --stage, changes of the working directory wait in a stage, and are shown.
Needs the package gatekeeper-sandbox (bindings/python). The variable GATEKEEPER names another gatekeeper program."""

import argparse
import sys

from gatekeeper_sandbox import Denial, Gatekeeper, Output


def main() -> int:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--yes", action="store_true")
    arguments.add_argument("--timeout", type=float, default=60)
    arguments.add_argument("--stage")
    arguments.add_argument("line")
    given = arguments.parse_args()

    def show(output: Output) -> None:
        if output.stream == "stdout":
            print("".join(f"| {line}\n" for line in output.text.splitlines()), end="", flush=True)
        else:
            print(output.text, end="", file=sys.stderr, flush=True)

    def ask(denial: Denial) -> bool:
        print(f"denied; to be granted: {denial.allow_with}", flush=True)
        if given.yes or not sys.stdin.isatty():
            return bool(given.yes)
        return input("grant it, and run the line again? [y/N] ").strip().lower() in ("y", "yes")

    keeper = Gatekeeper(profile="write" if given.stage else None)
    report = keeper.run_asking(given.line, ask, timeout=given.timeout, stage=given.stage, on_output=show)
    if given.stage and report.ran:
        print(keeper.stage(given.stage).patch(), end="")
    print(report.outcome, report.exit_code)
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
