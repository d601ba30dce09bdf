// A TLS server for HTTP/1.1 and HTTP/2 (or only HTTP/1.1, with the argument "one"). Answers with what it was asked, as JSON.
const fs = require("fs");
const [key, cert, seen, only] = process.argv.slice(2);
const options = { key: fs.readFileSync(key), cert: fs.readFileSync(cert), allowHTTP1: true };
const answer = (request, response) => {
  const path = request.url.split("?")[0];
  fs.appendFileSync(seen, `${request.method} ${request.url} ${request.httpVersion}\n`);
  if (path === "/v1/stream") {
    response.writeHead(200, { "content-type": "text/plain" });
    let count = 0;
    const more = () => (count++ < 3 ? (response.write(`part ${count}\n`), setTimeout(more, 200)) : response.end());
    return more();
  }
  if (path === "/v1/large") {
    response.writeHead(200, { "content-length": 20000000 });
    return response.end(Buffer.alloc(20000000, "x"));
  }
  if (path === "/v1/trailers") {
    response.setHeader("trailer", "x-sum");
    response.write("body");
    response.addTrailers({ "x-sum": "42" });
    return response.end();
  }
  if (path === "/v1/echo") {
    const echo = request.headers.authorization || "none";
    if (request.httpVersionMajor === 1) response.statusMessage = "OK " + echo;
    response.setHeader("x-echo", echo);
    response.setHeader("trailer", "x-sum");
    response.write("body");
    response.addTrailers({ "x-sum": echo });
    return response.end();
  }
  if ((request.headers["content-type"] || "").startsWith("application/grpc")) {
    // Echoes each message as it arrives, and ends with the status OK in the trailers.
    response.writeHead(200, { "content-type": "application/grpc" });
    request.on("data", (block) => response.write(block));
    return request.on("end", () => { response.addTrailers({ "grpc-status": "0" }); response.end(); });
  }
  let length = 0;
  let body = "";
  request.on("data", (block) => { length += block.length; if (body.length < 1000) body += block; });
  request.on("end", () => {
    const file = process.env.FILES && process.env.FILES + path;
    if (file && fs.existsSync(file) && fs.statSync(file).isFile()) return response.end(fs.readFileSync(file));
    const text = JSON.stringify({ method: request.method, url: request.url, version: request.httpVersion, headers: request.headers, length, body });
    response.writeHead(200, { "content-type": "application/json", "x-echo": request.headers.authorization || "none" });
    response.end(request.method === "HEAD" ? undefined : text + "\n");
  });
};
const server = only === "one" ? require("https").createServer(options, answer) : require("http2").createSecureServer(options, answer);
server.on("upgrade", (request, socket) => {
  fs.appendFileSync(seen, `UPGRADE ${request.url}\n`);
  socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
  socket.on("data", (data) => socket.write("echo " + data));
  socket.on("error", () => {});
});
server.on("error", (error) => { throw error; });
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
