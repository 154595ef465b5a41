// A gRPC service on @grpc/grpc-js, with the methods of grpc_server.py as far as the clients here need them; usage:
// grpc_server.mjs HOST. Prints its port.
import { createRequire } from "node:module";
const grpc = createRequire(import.meta.url)("@grpc/grpc-js");

const seen = new Map();
const bytes = (value) => value;
const method = (name, requestStream, responseStream) => ({
  path: `/test.Peer/${name}`, requestStream, responseStream,
  requestSerialize: bytes, requestDeserialize: bytes, responseSerialize: bytes, responseDeserialize: bytes,
});

function note(call, ask, event) {
  const left = (call.getDeadline() - Date.now()) / 1000;
  const fields = call.metadata.getMap();
  if (!seen.has(ask.key)) seen.set(ask.key, []);
  seen.get(ask.key).push({ event, left: Number.isFinite(left) ? left : null, fields });
}

const handlers = {
  Unary(call, done) {
    const ask = JSON.parse(call.request);
    note(call, ask, "begin");
    call.on("cancelled", () => note(call, ask, "cancelled"));
    const attempts = seen.get(ask.key).filter((entry) => entry.event === "begin").length;
    const trailers = new grpc.Metadata();
    for (const [name, value] of Object.entries(ask.trailers ?? { "x-after": "all" })) trailers.set(name, value);
    if (attempts <= (ask.failures ?? 0)) {
      if (ask.late_status) call.sendMetadata(new grpc.Metadata());
      const code = grpc.status[ask.code ?? "UNAVAILABLE"];
      done({ code, details: ask.details ?? "not now", metadata: trailers });
    } else if (ask.size) {
      done(null, Buffer.alloc(ask.size, "x"));
    } else {
      const fields = new grpc.Metadata();
      for (const name of Object.keys(call.metadata.getMap()).filter((name) => name.startsWith("x-"))) {
        call.metadata.get(name).forEach((value) => fields.add(name, value));
      }
      trailers.set("x-raw-bin", Buffer.from([...Array(256).keys()]));
      const answer = () => {
        if (call.cancelled) return;
        call.sendMetadata(fields);
        done(null, call.request, trailers);
      };
      setTimeout(answer, (ask.sleep ?? 0) * 1000);
    }
  },
  Collect(call, done) {
    let count = 0, size = 0;
    call.on("data", (message) => { count += 1; size += message.length; });
    call.on("end", () => done(null, Buffer.from(JSON.stringify([count, size]))));
  },
  async Stream(call) {
    const ask = JSON.parse(call.request);
    note(call, ask, "begin");
    call.on("cancelled", () => note(call, ask, "cancelled"));
    for (let number = 0; number < ask.count && !call.cancelled; number += 1) {
      if (number && ask.pause) await new Promise((resolve) => setTimeout(resolve, ask.pause * 1000));
      call.write(Buffer.from(JSON.stringify(number) + " ".repeat(ask.padding ?? 0)));
    }
    if (ask.then) call.emit("error", { code: grpc.status[ask.then], details: "after messages" });
    else call.end();
  },
  Echo(call) {
    call.on("data", (message) => call.write(message));
    call.on("end", () => call.end());
  },
  Seen(call, done) {
    done(null, Buffer.from(JSON.stringify(seen.get(JSON.parse(call.request).key) ?? [])));
  },
};

const server = new grpc.Server({ "grpc.max_receive_message_length": -1, "grpc.max_send_message_length": -1 });
server.addService({
  Unary: method("Unary", false, false), Collect: method("Collect", true, false), Stream: method("Stream", false, true),
  Echo: method("Echo", true, true), Seen: method("Seen", false, false),
}, handlers);
const host = process.argv[2].includes(":") ? `[${process.argv[2]}]` : process.argv[2];
server.bindAsync(`${host}:0`, grpc.ServerCredentials.createInsecure(), (error, port) => {
  if (error) throw error;
  console.log(`port ${port}`);
});
