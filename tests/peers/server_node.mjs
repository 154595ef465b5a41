// A small service on node:http. Prints its port. The same few paths as its siblings in this folder.
import http from "node:http";

const server = http.createServer((request, response) => {
  if (request.url === "/hello") response.end("hello");
  else if (request.url === "/big") response.end("x".repeat(1_000_000));
  else if (request.url === "/chunked") {
    for (let i = 0; i < 100; i++) response.write("0123456789");
    response.end();
  } else if (request.url === "/echo") {
    const parts = [];
    request.on("data", (part) => parts.push(part));
    request.on("end", () => response.end(Buffer.concat(parts)));
  } else {
    response.statusCode = 404;
    response.end();
  }
});
server.listen(0, "127.0.0.1", () => console.log("port", server.address().port));
