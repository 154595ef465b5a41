// Opens twenty streams on one connection and reads their answers, whatever the connection says meanwhile; usage:
// drain_h2.mjs URL. Prints `goaway` when it is told to open no more.
import assert from "node:assert/strict";
import http2 from "node:http2";

const url = new URL(process.argv[2]);
const session = http2.connect(url.origin);
session.on("error", (error) => { throw error; });
session.on("goaway", () => console.log("goaway"));

async function get() {
  const stream = session.request({ ":authority": url.host, ":path": url.pathname });
  let body = "";
  for await (const chunk of stream) body += chunk;
  return body;
}

const answers = await Promise.all(Array.from({ length: 20 }, get));
assert.deepEqual(new Set(answers), new Set(["through"]));
session.close();
console.log("ok");
