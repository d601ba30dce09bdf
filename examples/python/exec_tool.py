#!/usr/bin/env python3
"""An exec tool: exec_tool.py [--yes] [--timeout SECONDS] LINE

Runs LINE confined and streams its output. If something was denied, it asks on the terminal whether to grant it and runs the line
again; without a terminal it grants only with --yes. The variable GATEKEEPER names the gatekeeper program."""

import argparse
import sys

from gatekeeper import Denial, Gatekeeper


def main() -> int:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--yes", action="store_true")
    arguments.add_argument("--timeout", type=float, default=60)
    arguments.add_argument("line")
    given = arguments.parse_args()

    def show(stream: str, chunk: bytes) -> None:
        if stream == "stdout":
            print("".join(f"| {line}\n" for line in chunk.decode(errors="replace").splitlines()), end="", flush=True)
        else:
            sys.stderr.buffer.write(chunk)
            sys.stderr.flush()

    def ask(denial: Denial) -> bool:
        print(f"denied; to be granted: {denial.allow_with}", flush=True)
        if given.yes or not sys.stdin.isatty():
            return bool(given.yes)
        return input("grant it, and run the line again? [y/N] ").strip().lower() in ("y", "yes")

    report = Gatekeeper().run_asking(given.line, ask, timeout=given.timeout, on_output=show)
    print(report.outcome, report.exit_code)
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
