// A small service on node:http2 in clear text; usage: server_h2.mjs [HOST]. Prints its port. The same few paths as its
// siblings in this folder, and those that only HTTP/2 has.
import http2 from "node:http2";

const seen = new Map();
const waiting = new Set();

const paths = {
  "/hello": (stream) => answer(stream, "hello"),
  "/big": (stream) => answer(stream, "x".repeat(1_000_000)),
  "/chunked": (stream) => {
    stream.respond({ ":status": 200 });
    for (let number = 0; number < 100; number += 1) stream.write("0123456789");
    stream.end();
  },
  // What came: its fields, and its trailers when it has ended.
  "/fields": (stream, fields) => {
    let trailers = {};
    stream.on("trailers", (found) => { trailers = found; });
    stream.resume();
    stream.on("end", () => answer(stream, JSON.stringify({ fields, trailers })));
  },
  "/trailers": (stream) => {
    stream.respond({ ":status": 200 }, { waitForTrailers: true });
    stream.on("wantTrailers", () => stream.sendTrailers({ "x-sum": "42" }));
    stream.end("body");
  },
  "/hints": (stream) => {
    stream.additionalHeaders({ ":status": 103, link: "</style.css>; rel=preload" });
    answer(stream, "hinted");
  },
  "/reset-before": (stream) => stream.close(http2.constants.NGHTTP2_INTERNAL_ERROR),
  "/reset-after": (stream) => {
    stream.respond({ ":status": 200 });
    // Closed, it would end in order first.
    stream.write("half", () => setImmediate(() => stream.destroy(new Error("cut"))));
  },
  // Never ends; /seen tells how it did.
  "/hang": (stream, fields) => {
    const key = fields["x-key"];
    seen.set(key, "begun");
    stream.respond({ ":status": 200 });
    stream.write("begun");
    stream.on("close", () => seen.set(key, `closed ${stream.rstCode}`));
  },
  "/seen": (stream, fields) => answer(stream, String(seen.get(fields["x-key"]))),
  // Answers when /open is asked for; /waiting tells how many wait.
  "/gate": (stream) => {
    waiting.add(stream);
    stream.on("close", () => waiting.delete(stream));
  },
  "/waiting": (stream) => answer(stream, String(waiting.size)),
  "/open": (stream) => {
    waiting.forEach((held) => answer(held, "through"));
    answer(stream, "open");
  },
  // Answers, and takes no further stream on this connection.
  "/goaway": (stream) => {
    answer(stream, "bye");
    stream.session.close();
  },
};

function answer(stream, body) {
  stream.respond({ ":status": 200, "content-length": Buffer.byteLength(body), "content-type": "text/plain" });
  stream.end(body);
}

const server = http2.createServer({ settings: { enableConnectProtocol: true } });
server.on("stream", (stream, fields) => {
  // A peer that resets a stream has no handler to surprise.
  stream.on("error", () => {});
  const path = fields[":path"];
  if (fields[":method"] === "CONNECT") {
    stream.respond({ ":status": fields[":protocol"] === "websocket" ? 200 : 501 });
    stream.pipe(stream);
  } else if (fields[":method"] === "HEAD") {
    stream.respond({ ":status": 200, "content-length": 5 }, { endStream: true });
  } else if (path === "/echo") {
    stream.respond({ ":status": 200 });
    stream.pipe(stream);
  } else if (paths[path]) {
    paths[path](stream, fields);
  } else {
    stream.respond({ ":status": 404 }, { endStream: true });
  }
});
server.on("sessionError", () => {});
server.listen(0, process.argv[2] ?? "127.0.0.1", () => console.log(`port ${server.address().port}`));
