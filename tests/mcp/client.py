"""Tests `gatekeeper mcp` with the official client: client.py GATEKEEPER MODE, in the server's working directory.

Prints "ok" at the end. The client itself validates each answer against the tool's output schema."""

import sys
from pathlib import Path

import anyio
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters


async def main(program: str, mode: str) -> None:
    here = Path.cwd()
    (here / "data").mkdir()
    (here / "other").mkdir()
    server = StdioServerParameters(command=program, args=["mcp", "--grantable", "--write data"], cwd=here)
    async with Client(server, mode=mode) as client:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == ["exec"], tools
        assert "profile minimal" in (tools[0].description or ""), tools

        result = await client.call_tool("exec", {"command": ["wc", "-c"], "stdin": "hello"})
        assert not result.is_error, result
        assert result.structured_content["stdout"].strip() == "5", result
        assert result.structured_content["denials"] == [], result

        # A denial is structured data. Its `allow_with` is a grant, which applies to one call only.
        touch = {"command": ["touch", "new"], "cwd": "data"}
        result = await client.call_tool("exec", touch)
        report = result.structured_content
        assert (report["outcome"], report["exit_code"]) == ("exited", 1), report
        assert report["denials"][0]["path"] == str(here / "data/new"), report
        (grant,) = report["grantable"]
        assert grant == report["denials"][0]["allow_with"], report
        result = await client.call_tool("exec", {**touch, "grants": [grant]})
        assert result.structured_content["exit_code"] == 0, result
        assert (here / "data/new").exists()
        result = await client.call_tool("exec", {**touch, "command": ["touch", "newer"]})
        assert result.structured_content["exit_code"] == 1, result

        # A grant that the operator did not list is refused.
        result = await client.call_tool("exec", {"line": "touch other/new", "grants": [f"--write {here}/other"]})
        assert result.is_error and not (here / "other/new").exists(), result

        result = await client.call_tool("exec", {"command": ["sleep", "60"], "timeout": 0.2})
        assert result.is_error and result.structured_content["outcome"] == "timeout", result
        result = await client.call_tool("exec", {"command": ["no-such-program"]})
        assert result.is_error and result.structured_content["outcome"] == "not_found", result

        (resource,) = (await client.list_resources()).resources
        words, policy = (await client.read_resource(resource.uri)).contents
        assert "write: nothing" in words.text and 'profile = "minimal"' in policy.text, (words, policy)

        # A cancelled call is ended, and the next one is answered.
        with anyio.move_on_after(0.5) as scope:
            await client.call_tool("exec", {"command": ["sleep", "60"]})
        assert scope.cancelled_caught
        result = await client.call_tool("exec", {"line": "echo $((6 * 7))"})
        assert result.structured_content["stdout"] == "42\n", result
    print("ok")


anyio.run(main, sys.argv[1], sys.argv[2])
