// Calls the paths of the services in this folder with fetch; usage: client_fetch.mjs URL.
import assert from "node:assert/strict";

const base = process.argv[2];
const text = async (path, options) => (await fetch(base + path, options)).text();

for (let i = 0; i < 20; i++) assert.equal(await text("/hello"), "hello");
const many = await Promise.all(Array.from({ length: 50 }, () => text("/hello")));
assert.ok(many.every((body) => body === "hello"));
const body = "0123456789".repeat(100_000);
assert.equal(await text("/echo", { method: "POST", body }), body);
const stream = new ReadableStream({
  start(controller) {
    for (const part of ["one", "two", "three"]) controller.enqueue(new TextEncoder().encode(part));
    controller.close();
  },
});
assert.equal(await text("/echo", { method: "POST", body: stream, duplex: "half" }), "onetwothree");
assert.equal(await text("/chunked"), "0123456789".repeat(100));
assert.equal((await text("/big")).length, 1_000_000);
assert.equal((await fetch(base + "/hello", { method: "HEAD" })).status, 200);
assert.equal((await fetch(base + "/nowhere")).status, 404);
console.log("ok");
