"""Drives gatekeeperd with the official MCP client: client.py http PAGE URL TOKEN, or client.py stdio PAGE PROGRAM WORD...

Prints "ok" at the end."""

import sys

import anyio
import httpx2
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

TOOLS = "open_session navigate screenshot click type scroll read_dom close_session run_task"


async def drive(client: Client, page: str) -> None:
    tools = (await client.list_tools()).tools
    assert [tool.name for tool in tools] == [f"browser_{name}" for name in TOOLS.split()], tools

    async def call(name: str, **arguments):
        result = await client.call_tool(f"browser_{name}", arguments)
        assert not result.is_error, result
        return result.structured_content, result

    opened, _ = await call("open_session", record="off")
    session = opened["session_id"]
    assert opened["credential_mode"] == "clean", opened
    navigated, _ = await call("navigate", session_id=session, url=page)
    assert (navigated["status"], navigated["title"]) == (200, "echo"), navigated
    picture, result = await call("screenshot", session_id=session)
    assert picture["width"] == 1280, picture
    assert [block.type for block in result.content] == ["text", "image"], result
    typed, _ = await call("type", session_id=session, selector="#in", text="hello")
    assert typed == {"success": True}, typed
    dom, _ = await call("read_dom", session_id=session)
    assert "id=\"in\"" in dom["html"], dom
    result = await client.call_tool("browser_click", {"session_id": session, "selector": "#none"})
    assert result.is_error and result.structured_content["error"]["code"] == "browser_failed", result
    result = await client.call_tool("browser_navigate", {"session_id": "another", "url": page})
    assert result.is_error and result.structured_content["error"]["code"] == "not_found", result
    closed, _ = await call("close_session", session_id=session)
    assert "closed_at" in closed, closed


async def main(kind: str, page: str, *words: str) -> None:
    if kind == "stdio":
        async with Client(StdioServerParameters(command=words[0], args=list(words[1:]))) as client:
            await drive(client, page)
        return
    url, token = words
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        async with Client(streamable_http_client(url, http_client=http)) as client:
            await drive(client, page)
    async with httpx2.AsyncClient() as http:
        answer = await http.post(url, json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        assert answer.status_code == 401, answer


anyio.run(main, *sys.argv[1:])
print("ok")
