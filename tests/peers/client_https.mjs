// Calls an HTTPS service with undici as the environment (HTTPS_PROXY, NODE_EXTRA_CA_CERTS) says; usage:
// client_https.mjs URL.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
const { EnvHttpProxyAgent, request } = createRequire(import.meta.url)("undici");

const dispatcher = new EnvHttpProxyAgent();
const text = async (path) => (await request(process.argv[2] + path, { dispatcher })).body.text();
for (let i = 0; i < 5; i++) assert.equal(await text("/hello"), "hello");
const many = await Promise.all(Array.from({ length: 20 }, () => text("/hello")));
assert.ok(many.every((body) => body === "hello"));
assert.equal((await text("/big")).length, 1_000_000);
await dispatcher.close();
console.log("ok");
