"""A gRPC service on grpcio that remembers what reached it; usage: grpc_server.py HOST [CERTIFICATE KEY]. Prints its port.
With CONNECTION_AGE in the environment it ends connections, in order, when they are that many milliseconds old.

Messages are bytes without a schema. A request of every method is JSON: {"key": .., ..}; `Seen` answers with what was
seen under a key.
"""
import asyncio
import json
import os
import sys
from collections import defaultdict

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

seen = defaultdict(list)


def note(context, ask, event):
    fields = {name: value for name, value in context.invocation_metadata() if isinstance(value, str)}
    seen[ask["key"]].append({"event": event, "left": context.time_remaining(), "fields": fields})


async def fail(context, ask):
    """UNAVAILABLE, the first `failures` times that a key calls."""
    attempts = sum(entry["event"] == "begin" for entry in seen[ask["key"]])
    if attempts <= ask.get("failures", 0):
        if ask.get("late_status"):
            await context.send_initial_metadata((("x-early", "yes"),))
        trailers = tuple((name, value) for name, value in ask.get("trailers", {}).items())
        context.set_trailing_metadata(trailers)
        await context.abort(grpc.StatusCode[ask.get("code", "UNAVAILABLE")], ask.get("details", "not now"))


async def unary(request, context):
    ask = json.loads(request)
    note(context, ask, "begin")
    try:
        if "size" in ask:
            return b"x" * ask["size"]
        await asyncio.sleep(ask.get("sleep", 0))
        await fail(context, ask)
    except asyncio.CancelledError:
        note(context, ask, "cancelled")
        raise
    fields = [(name, value) for name, value in context.invocation_metadata() if name.startswith("x-")]
    await context.send_initial_metadata(fields)
    context.set_trailing_metadata((("x-after", "all"), ("x-raw-bin", bytes(range(256)))))
    return request


async def collect(requests, context):
    count = size = 0
    async for request in requests:
        count, size = count + 1, size + len(request)
    return json.dumps([count, size]).encode()


async def stream(request, context):
    """`count` messages with `pause` seconds before each but the first."""
    ask = json.loads(request)
    note(context, ask, "begin")
    try:
        for number in range(ask["count"]):
            await asyncio.sleep(ask.get("pause", 0) if number else 0)
            yield json.dumps(number).encode() + b" " * ask.get("padding", 0)
        if "then" in ask:
            await context.abort(grpc.StatusCode[ask["then"]], "after messages")
    except (asyncio.CancelledError, GeneratorExit):
        # The second when the call is cancelled while a message is on its way out.
        note(context, ask, "cancelled")
        raise


async def echo(requests, context):
    async for request in requests:
        yield request


async def answer_seen(request, context):
    return json.dumps(seen[json.loads(request)["key"]]).encode()


async def main():
    age = [("grpc.max_connection_age_ms", int(os.environ["CONNECTION_AGE"]))] if "CONNECTION_AGE" in os.environ else []
    server = grpc.aio.server(options=[
        *age,
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
        ("grpc.so_reuseport", 0),
    ])
    handlers = {
        "Unary": grpc.unary_unary_rpc_method_handler(unary),
        "Collect": grpc.stream_unary_rpc_method_handler(collect),
        "Stream": grpc.unary_stream_rpc_method_handler(stream),
        "Echo": grpc.stream_stream_rpc_method_handler(echo),
        "Seen": grpc.unary_unary_rpc_method_handler(answer_seen),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Peer", handlers),))
    checks = health.aio.HealthServicer()
    await checks.set("test.Peer", health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    reflection.enable_server_reflection(["grpc.health.v1.Health", reflection.SERVICE_NAME], server)
    host = f"[{sys.argv[1]}]" if ":" in sys.argv[1] else sys.argv[1]
    if len(sys.argv) > 2:
        certificate, key = (open(name, "rb").read() for name in sys.argv[2:4])
        credentials = grpc.ssl_server_credentials([(key, certificate)])
        port = server.add_secure_port(f"{host}:0", credentials)
    else:
        port = server.add_insecure_port(f"{host}:0")
    await server.start()
    print("port", port, flush=True)
    await server.wait_for_termination()


asyncio.run(main())
