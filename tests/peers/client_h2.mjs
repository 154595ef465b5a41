// Calls the paths of server_h2.mjs with node:http2; usage: client_h2.mjs URL [direct]. Without a proxy between, a stream
// that is reset before its head is seen as that.
import assert from "node:assert";
import http2 from "node:http2";

const session = http2.connect(process.argv[2]);
// Node itself leaves out the brackets of an IPv6 address.
const authority = new URL(process.argv[2]).host;
const direct = process.argv[3] === "direct";
session.on("error", (error) => { throw error; });

function call(fields, { body, trailers } = {}) {
  const stream = session.request({ ":authority": authority, ...fields }, { endStream: body === undefined, waitForTrailers: !!trailers });
  if (trailers) stream.on("wantTrailers", () => stream.sendTrailers(trailers));
  const answer = { hints: [], trailers: {} };
  stream.on("headers", (found) => answer.hints.push(found));
  stream.on("trailers", (found) => { answer.trailers = found; });
  stream.on("response", (found) => { answer.fields = found; answer.status = found[":status"]; });
  if (body !== undefined) stream.end(body);
  return new Promise((resolve) => {
    const chunks = [];
    stream.on("data", (chunk) => chunks.push(chunk));
    stream.on("error", (error) => { answer.error = error; });
    stream.on("close", () => resolve({ ...answer, code: stream.rstCode, body: Buffer.concat(chunks) }));
  });
}

const get = (path, fields = {}) => call({ ":path": path, ...fields });
const post = (path, body, rest = {}) => call({ ":path": path, ":method": "POST" }, { body, ...rest });

for (let round = 0; round < 20; round += 1) {
  const answer = await get("/hello");
  assert.deepEqual([answer.status, String(answer.body), answer.code], [200, "hello", 0]);
}
const head = await call({ ":path": "/hello", ":method": "HEAD" });
assert.deepEqual([head.status, head.body.length, head.fields["content-length"]], [200, 0, "5"]);
assert.equal((await get("/big")).body.length, 1_000_000);
assert.equal(String((await get("/chunked")).body), "0123456789".repeat(100));
assert.equal((await get("/nowhere")).status, 404);
const large = Buffer.alloc(3_000_000, "abc");
assert.deepEqual((await post("/echo", large)).body, large);

// What is sent arrives as it was sent.
const fields = { "x-one": "1", cookie: ["a=1", "b=2"], "x-many": ["1", "2"], te: "trailers" };
const { fields: arrived } = JSON.parse((await get("/fields", fields)).body);
assert.equal(arrived[":authority"], authority);
assert.equal(arrived[":scheme"], "http");
assert.deepEqual([arrived["x-one"], arrived.cookie, arrived["x-many"]], ["1", "a=1; b=2", "1, 2"]);

// Trailers, both ways.
const sent = await post("/fields", "body", { trailers: { "x-checksum": "abc" } });
assert.equal(JSON.parse(sent.body).trailers["x-checksum"], "abc");
const received = await get("/trailers");
assert.deepEqual([String(received.body), received.trailers["x-sum"]], ["body", "42"]);

// An interim answer goes before.
const hinted = await get("/hints");
assert.deepEqual([hinted.status, String(hinted.body)], [200, "hinted"]);
assert.deepEqual(hinted.hints.map((hint) => [hint[":status"], hint.link]), [[103, "</style.css>; rel=preload"]]);

// A reset before the head becomes an answer with words, one after it a reset: never something that looks whole.
const before = await get("/reset-before");
if (direct) {
  assert.equal(before.status, undefined);
} else {
  assert.equal(before.status, 503);
  assert.match(before.fields["proxy-status"], /(reason|cause)=UpstreamReset/);
}
const after = await get("/reset-after");
assert.deepEqual([after.status, String(after.body)], [200, "half"]);
assert.notEqual(after.code, 0, "the cut answer looked whole");

// A caller's reset reaches the server.
const key = "reset-by-caller";
const hang = session.request({ ":authority": authority, ":path": "/hang", "x-key": key });
hang.on("error", () => {});
await new Promise((resolve) => hang.once("data", resolve));
hang.close(http2.constants.NGHTTP2_CANCEL);
const end = Date.now() + 20_000;
for (;;) {
  const answer = String((await get("/seen", { "x-key": key })).body);
  if (answer === "closed 8") break;
  assert(Date.now() < end, answer);
}

// Many at once.
const many = await Promise.all([...Array(300).keys()].map((number) => post("/echo", `call ${number}`)));
many.forEach((answer, number) => assert.equal(String(answer.body), `call ${number}`));

// A server that takes no further streams on a connection costs no call; without a proxy, only its own connection.
if (!direct) {
  for (let round = 0; round < 10; round += 1) {
    const answers = await Promise.all([get("/hello"), get("/goaway"), get("/hello"), get("/big")]);
    const refused = answers.filter((answer) => answer.status !== 200);
    assert.deepEqual(refused.map((answer) => [answer.status, answer.fields?.["proxy-status"]]), []);
  }
}
session.close();
console.log("ok");
