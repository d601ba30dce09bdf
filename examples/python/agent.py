#!/usr/bin/env python3
"""An agent in 60 lines: agent.py TASK

Asks a model of any OpenAI-compatible endpoint what to run, runs it confined in a stage, and goes on until the model is done. Nothing in
the working directory changes before you have read the difference: `gatekeeper stage apply agent`.
Variables: OPENAI_BASE_URL (such as http://localhost:11434/v1), OPENAI_MODEL, OPENAI_API_KEY."""

import json
import os
import sys
import urllib.request
from typing import Any

from gatekeeper_sandbox import Gatekeeper, Report

TOOL = {
    "type": "function",
    "function": {
        "name": "exec",
        "description": "Runs a line with sh in the working directory, confined: no network, and writes stay in a stage.",
        "parameters": {"type": "object", "properties": {"line": {"type": "string"}}, "required": ["line"]},
    },
}


def ask_model(messages: list[dict[str, Any]]) -> dict[str, Any]:
    body = {"model": os.environ.get("OPENAI_MODEL", "default"), "messages": messages, "tools": [TOOL]}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    request.add_header("Authorization", "Bearer " + os.environ.get("OPENAI_API_KEY", "none"))
    with urllib.request.urlopen(request, timeout=300) as answer:
        return dict(json.load(answer)["choices"][0]["message"])


def describe(report: Report) -> str:
    """What the model sees. Denials come from gatekeeper; the output comes from the command, and is marked as such."""
    denials = [{"path": each.path, "host": each.host, "rule": each.rule} for each in report.denials[:5]]
    statement = {"outcome": report.outcome, "exit_code": report.exit_code, "error": report.error, "denied": denials}
    return json.dumps({**statement, "stdout": report.text[-8000:], "stderr": report.stderr.decode(errors="replace")[-2000:]})


def main() -> int:
    keeper = Gatekeeper(profile="write")
    messages: list[dict[str, Any]] = [{"role": "user", "content": " ".join(sys.argv[1:])}]
    for _ in range(30):
        message = ask_model(messages)
        messages.append(message)
        if not message.get("tool_calls"):
            print(message["content"])
            return 0
        for call in message["tool_calls"]:
            # The model chooses the line and nothing else: the profile, the stage and the limits are ours.
            line = str(json.loads(call["function"]["arguments"])["line"])
            report = keeper.run(line, timeout=60, stage="agent", flags=["--memory", "1G"])
            print(f"$ {line!r}: {report.summary}", file=sys.stderr)
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": describe(report)})
    return 1


sys.exit(main())
