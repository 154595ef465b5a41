// One stream of a hundred is not read; usage: stall_h2.mjs URL. The others on its connection must not notice.
import assert from "node:assert/strict";
import http2 from "node:http2";

const session = http2.connect(process.argv[2], { maxSessionMemory: 300 });
session.on("error", (error) => { throw error; });

function get(path) {
  return session.request({ ":authority": new URL(process.argv[2]).host, ":path": path });
}

async function size(stream) {
  let total = 0;
  for await (const chunk of stream) total += chunk.length;
  return total;
}

// Nothing reads it: its own window fills, and stays full.
const stalled = get("/big");
await new Promise((resolve) => stalled.once("response", resolve));
const began = Date.now();
const sizes = await Promise.all(Array.from({ length: 99 }, () => size(get("/big"))));
console.log(`the others took ${Date.now() - began} ms`);
assert.deepEqual(new Set(sizes), new Set([1_000_000]));
assert.equal(await size(stalled), 1_000_000, "it goes on where it stood");
session.close();
console.log("ok");
