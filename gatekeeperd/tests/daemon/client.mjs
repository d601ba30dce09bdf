// Drives gatekeeperd with the official TypeScript client: client.mjs http PAGE URL TOKEN, or client.mjs stdio PAGE PROGRAM WORD...
// MODULES is the directory of npm packages. Prints "ok" at the end.
import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";

const sdk = (file) => import(pathToFileURL(`${process.env.MODULES}/@modelcontextprotocol/sdk/dist/esm/client/${file}.js`).href);
const { Client } = await sdk("index");
const { StreamableHTTPClientTransport } = await sdk("streamableHttp");
const { StdioClientTransport } = await sdk("stdio");

const TOOLS = "open_session navigate screenshot click type scroll read_dom close_session run_task";
const [kind, page, ...words] = process.argv.slice(2);

function over(token) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  return new StreamableHTTPClientTransport(new URL(words[0]), { requestInit: { headers } });
}

const client = new Client({ name: "test", version: "1" });
await client.connect(kind === "http" ? over(words[1]) : new StdioClientTransport({ command: words[0], args: words.slice(1) }));
const { tools } = await client.listTools();
assert.deepEqual(tools.map((tool) => tool.name), TOOLS.split(" ").map((name) => `browser_${name}`));

const ask = (name, given) => client.callTool({ name: `browser_${name}`, arguments: given });
async function call(name, given) {
  const result = await ask(name, given);
  assert.ok(!result.isError, JSON.stringify(result));
  return result;
}
const opened = (await call("open_session", { record: "off" })).structuredContent;
assert.equal(opened.credential_mode, "clean");
const session_id = opened.session_id;
const navigated = (await call("navigate", { session_id, url: page })).structuredContent;
assert.deepEqual([navigated.status, navigated.title], [200, "echo"]);
const picture = await call("screenshot", { session_id });
assert.deepEqual(picture.content.map((block) => block.type), ["text", "image"]);
assert.equal(picture.structuredContent.width, 1280);
assert.deepEqual((await call("type", { session_id, selector: "#in", text: "hello" })).structuredContent, { success: true });
assert.match((await call("read_dom", { session_id })).structuredContent.html, /id="in"/);
const missing = await ask("click", { session_id, selector: "#none" });
assert.deepEqual([missing.isError, missing.structuredContent.error.code], [true, "browser_failed"]);
const other = await ask("navigate", { session_id: "another", url: page });
assert.deepEqual([other.isError, other.structuredContent.error.code], [true, "not_found"]);
assert.ok((await call("close_session", { session_id })).structuredContent.closed_at);
await assert.rejects(ask("no_such_tool", {}));
await client.close();
if (kind === "http") {
  for (const token of [undefined, "gkt_wrong"]) {
    await assert.rejects(new Client({ name: "test", version: "1" }).connect(over(token)), `with ${token}`);
  }
}
console.log("ok");
