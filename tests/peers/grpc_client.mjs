// Talks to grpc_server.py or grpc_server.mjs with @grpc/grpc-js; usage: grpc_client.mjs ADDRESS.
import assert from "node:assert";
import { randomUUID } from "node:crypto";
import { createRequire } from "node:module";
const grpc = createRequire(import.meta.url)("@grpc/grpc-js");

const PATIENCE = 20_000;
const client = new grpc.Client(process.argv[2], grpc.credentials.createInsecure(), {
  "grpc.enable_retries": 0, "grpc.enable_http_proxy": 0,
  "grpc.max_receive_message_length": -1, "grpc.max_send_message_length": -1,
});
const bytes = (value) => value;
const soon = () => ({ deadline: Date.now() + PATIENCE });
const ask = (key, rest = {}) => Buffer.from(JSON.stringify({ key, ...rest }));

function unary(method, request, options = soon(), metadata = new grpc.Metadata()) {
  let call;
  const answer = new Promise((resolve, reject) => {
    call = client.makeUnaryRequest(`/test.Peer/${method}`, bytes, bytes, request, metadata, options,
      (error, response) => (error ? reject(error) : resolve(response)));
  });
  return { call, answer };
}

async function collected(stream) {
  const messages = [];
  for await (const message of stream) messages.push(message);
  return messages;
}

async function waitFor(key, event) {
  const end = Date.now() + PATIENCE;
  for (;;) {
    const seen = JSON.parse(await unary("Seen", ask(key)).answer);
    if (seen.some((entry) => entry.event === event)) return seen;
    assert(Date.now() < end, `${event} was never seen: ${JSON.stringify(seen)}`);
  }
}

// Unary, with a message that needs many frames.
for (const size of [0, 1000, 3_000_000]) {
  const request = ask(randomUUID(), { filler: "x".repeat(size) });
  assert.deepEqual(await unary("Unary", request).answer, request);
}

// Client stream.
const counted = new Promise((resolve, reject) => {
  const call = client.makeClientStreamRequest("/test.Peer/Collect", bytes, bytes, new grpc.Metadata(), soon(),
    (error, response) => (error ? reject(error) : resolve(response)));
  for (let number = 0; number < 100; number += 1) call.write(Buffer.alloc(1000));
  call.end();
});
assert.equal(String(await counted).replaceAll(" ", ""), "[100,100000]");

// Server stream.
const stream = (request, options = soon()) =>
  client.makeServerStreamRequest("/test.Peer/Stream", bytes, bytes, request, new grpc.Metadata(), options);
assert.deepEqual((await collected(stream(ask(randomUUID(), { count: 100 })))).map(Number), [...Array(100).keys()]);

// Both: each message is sent when the answer to the one before is here.
const echo = client.makeBidiStreamRequest("/test.Peer/Echo", bytes, bytes, new grpc.Metadata(), soon());
let turns = 0;
echo.write(Buffer.from("0"));
for await (const message of echo) {
  assert.equal(String(message), String(turns));
  turns += 1;
  if (turns < 50) echo.write(Buffer.from(String(turns)));
  else echo.end();
}
assert.equal(turns, 50);

// A status in trailers alone, and one after a head.
for (const late_status of [false, true]) {
  const request = ask(randomUUID(), { failures: 1, code: "FAILED_PRECONDITION", details: "naïve", late_status });
  const error = await unary("Unary", request).answer.then(() => assert.fail("no error"), (error) => error);
  assert.deepEqual([error.code, error.details], [grpc.status.FAILED_PRECONDITION, "naïve"]);
}

// A deadline ends the call, and the handler sees that it has ended.
const key = randomUUID();
const late = await unary("Unary", ask(key, { sleep: 5 }), { deadline: Date.now() + 300 })
  .answer.then(() => assert.fail("no error"), (error) => error);
assert.equal(late.code, grpc.status.DEADLINE_EXCEEDED, late);
const [begin] = await waitFor(key, "cancelled");
assert(begin.left > 0 && begin.left < 0.35, JSON.stringify(begin));

// So does a caller that gives up, before and after an answer has begun.
const given = randomUUID();
const { call, answer } = unary("Unary", ask(given, { sleep: 60 }));
await waitFor(given, "begin");
call.cancel();
assert.equal((await answer.catch((error) => error)).code, grpc.status.CANCELLED);
await waitFor(given, "cancelled");

const begun = randomUUID();
const open = stream(ask(begun, { count: 2, pause: 60 }));
open.on("error", (error) => assert.equal(error.code, grpc.status.CANCELLED));
await new Promise((resolve) => open.once("data", resolve));
open.cancel();
await waitFor(begun, "cancelled");

// Many at once.
const many = await Promise.all([...Array(300).keys()].map((number) =>
  unary("Unary", ask(randomUUID(), { number })).answer.then((answer) => JSON.parse(answer).number)));
assert.deepEqual(many, [...Array(300).keys()]);
client.close();
console.log("ok");
