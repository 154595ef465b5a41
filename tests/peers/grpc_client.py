"""Talks to grpc_server.py with grpcio; usage: grpc_client.py CASE[,CASE..] ADDRESS [ARGUMENT].

With `grpc_proxy` in the environment it asks that proxy for a tunnel, with AUTHORITY it calls the server by that name, with CA by
TLS.
"""
import json
import os
import queue
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

PATIENCE = 20
Code = grpc.StatusCode


class Peer:
    def __init__(self, address, compression=None):
        options = [
            ("grpc.enable_retries", 0),
            ("grpc.enable_http_proxy", int("grpc_proxy" in os.environ)),
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        if "AUTHORITY" in os.environ:
            options.append(("grpc.default_authority", os.environ["AUTHORITY"]))
        if "CA" in os.environ:
            credentials = grpc.ssl_channel_credentials(open(os.environ["CA"], "rb").read())
            self.channel = grpc.secure_channel(address, credentials, options=options, compression=compression)
        else:
            self.channel = grpc.insecure_channel(address, options=options, compression=compression)
        self.unary = self.channel.unary_unary("/test.Peer/Unary")
        self.collect = self.channel.stream_unary("/test.Peer/Collect")
        self.stream = self.channel.unary_stream("/test.Peer/Stream")
        self.echo = self.channel.stream_stream("/test.Peer/Echo")
        self.answer_seen = self.channel.unary_unary("/test.Peer/Seen")

    def seen(self, key):
        return json.loads(self.answer_seen(ask(key), timeout=PATIENCE))

    def attempts(self, key):
        return [entry for entry in self.seen(key) if entry["event"] == "begin"]

    def wait_for(self, key, event):
        end = time.monotonic() + PATIENCE
        while not any(entry["event"] == event for entry in self.seen(key)):
            assert time.monotonic() < end, f"{event} was never seen: {self.seen(key)}"


def ask(key, **rest):
    return json.dumps({"key": key, **rest}).encode()


def fresh():
    return uuid.uuid4().hex


def failure(call):
    """The error that a call ends with."""
    try:
        result = call()
    except grpc.RpcError as error:
        return error
    raise AssertionError(f"expected an error, got {result!r:.200}")


def metadata(pairs):
    return {name: value for name, value in pairs or ()}


def case_messages(peer):
    """All four kinds of call, metadata both ways, status with details, large and compressed messages."""
    request = ask(fresh())
    answer, call = peer.unary.with_call(request, timeout=PATIENCE, metadata=(("x-one", "1"), ("x-two-bin", b"\x00\xff")))
    assert answer == request
    assert metadata(call.initial_metadata())["x-one"] == "1", call.initial_metadata()
    assert metadata(call.initial_metadata())["x-two-bin"] == b"\x00\xff", call.initial_metadata()
    trailing = metadata(call.trailing_metadata())
    assert trailing["x-after"] == "all" and trailing["x-raw-bin"] == bytes(range(256)), trailing

    assert json.loads(peer.collect(iter([b"abc"] * 100), timeout=PATIENCE)) == [100, 300]
    assert json.loads(peer.collect(iter([]), timeout=PATIENCE)) == [0, 0]
    numbers = [json.loads(message) for message in peer.stream(ask(fresh(), count=100), timeout=PATIENCE)]
    assert numbers == list(range(100)), numbers
    assert list(peer.stream(ask(fresh(), count=0), timeout=PATIENCE)) == []

    # Each message is sent only when the answer to the one before is here.
    turns = queue.Queue()
    answers = peer.echo(iter(turns.get, None), timeout=PATIENCE)
    for number in range(50):
        message = b"%d" % number + b"." * (number * 1000)
        turns.put(message)
        assert next(answers) == message
    turns.put(None)
    assert list(answers) == []
    assert answers.code() == Code.OK

    details = "100 % voll: \u00e4\u00f6\u00fc \u2693"
    for late in (False, True):
        error = failure(lambda: peer.unary(
            ask(fresh(), failures=1, code="FAILED_PRECONDITION", details=details, late_status=late,
                trailers={"x-why": "because"}), timeout=PATIENCE))
        assert (error.code(), error.details()) == (Code.FAILED_PRECONDITION, details), error
        assert metadata(error.trailing_metadata())["x-why"] == "because", error
    missing = peer.channel.unary_unary("/test.Peer/Missing")
    assert failure(lambda: missing(b"", timeout=PATIENCE)).code() == Code.UNIMPLEMENTED

    large = 8 << 20
    assert len(peer.unary(ask(fresh(), size=large), timeout=PATIENCE)) == large
    assert json.loads(peer.collect(iter([b"x" * large, b"y" * large]), timeout=PATIENCE)) == [2, 2 * large]
    assert sum(len(message) for message in peer.echo(iter([b"x" * large] * 3), timeout=PATIENCE)) == 3 * large


def case_compressed(peer):
    peer = Peer(peer.address, compression=grpc.Compression.Gzip)
    request = ask(fresh(), filler="a" * 100_000)
    assert peer.unary(request, timeout=PATIENCE) == request
    assert len(list(peer.stream(ask(fresh(), count=5), timeout=PATIENCE))) == 5


def case_services(peer):
    health = health_pb2_grpc.HealthStub(peer.channel)
    serving = health_pb2.HealthCheckResponse.SERVING
    check = health_pb2.HealthCheckRequest(service="test.Peer")
    assert health.Check(check, timeout=PATIENCE).status == serving
    watch = health.Watch(check, timeout=PATIENCE)
    assert next(watch).status == serving
    watch.cancel()
    error = failure(lambda: health.Check(health_pb2.HealthCheckRequest(service="nobody"), timeout=PATIENCE))
    assert error.code() == Code.NOT_FOUND, error

    reflection = reflection_pb2_grpc.ServerReflectionStub(peer.channel)
    requests = [reflection_pb2.ServerReflectionRequest(list_services=""),
                reflection_pb2.ServerReflectionRequest(file_containing_symbol="grpc.health.v1.Health")]
    services, file = reflection.ServerReflectionInfo(iter(requests), timeout=PATIENCE)
    names = [service.name for service in services.list_services_response.service]
    assert "grpc.health.v1.Health" in names, names
    assert b"HealthCheckRequest" in file.file_descriptor_response.file_descriptor_proto[0]


def case_many(peer):
    """Hundreds of calls and streams at once on one connection."""
    with ThreadPoolExecutor(150) as pool:
        def one(number):
            request = ask(fresh(), number=number)
            if number % 3 == 0:
                return peer.unary(request, timeout=PATIENCE) == request
            if number % 3 == 1:
                return len(list(peer.stream(ask(fresh(), count=20, padding=1000), timeout=PATIENCE))) == 20
            return list(peer.echo(iter([request] * 20), timeout=PATIENCE)) == [request] * 20
        assert all(pool.map(one, range(450)))


def case_steady(peer):
    """Call after call from several callers for two seconds; each is answered."""
    end = time.monotonic() + 2
    def call_on(_):
        count = 0
        while time.monotonic() < end:
            request = ask(fresh(), sleep=0.001)
            assert peer.unary(request, timeout=PATIENCE) == request
            assert len(list(peer.stream(ask(fresh(), count=3), timeout=PATIENCE))) == 3
            count += 2
        return count
    with ThreadPoolExecutor(8) as pool:
        print(sum(pool.map(call_on, range(8))), "calls")


def case_cancel(peer):
    """A caller that gives up is seen by the handler, before and after the answer has begun."""
    key = fresh()
    call = peer.unary.future(ask(key, sleep=60))
    peer.wait_for(key, "begin")
    call.cancel()
    peer.wait_for(key, "cancelled")

    key = fresh()
    call = peer.stream(ask(key, count=2, pause=60))
    assert json.loads(next(call)) == 0
    call.cancel()
    peer.wait_for(key, "cancelled")


def case_deadline(peer):
    """300 ms against a handler of 5 s; usage of the other argument: the ms that the handler has at most."""
    key = fresh()
    began = time.monotonic()
    error = failure(lambda: peer.unary(ask(key, sleep=5), timeout=0.3))
    took = time.monotonic() - began
    print(f"DEADLINE_EXCEEDED after {took * 1000:.0f} ms: {error.details()}")
    assert error.code() == Code.DEADLINE_EXCEEDED, error
    # At 300 ms by the clock of the client, or when the handler's own, which is shorter then, has run out.
    assert 0.19 < took < 4, took
    peer.wait_for(key, "cancelled")
    begin, cancelled = peer.seen(key)
    print(f"the handler saw {begin['left'] * 1000:.0f} ms left")
    assert 0 < begin["left"] <= float(sys.argv[3]) / 1000, begin

    # A stream too, in the middle of its answer.
    key = fresh()
    call = peer.stream(ask(key, count=2, pause=5), timeout=0.3)
    assert json.loads(next(call)) == 0
    assert failure(lambda: next(call)).code() == Code.DEADLINE_EXCEEDED
    peer.wait_for(key, "cancelled")


def case_retried(peer):
    """UNAVAILABLE in trailers of a unary call is retried, and its attempts are numbered."""
    for late in (False, True):
        key = fresh()
        request = ask(key, failures=2, late_status=late)
        assert peer.unary(request, timeout=PATIENCE) == request
        attempts = [entry["fields"].get("grpc-previous-rpc-attempts") for entry in peer.attempts(key)]
        assert attempts == [None, "1", "2"], attempts

        # A caller that is at it again itself is left to it: one layer retries.
        key = fresh()
        tried = (("grpc-previous-rpc-attempts", "4"),)
        error = failure(lambda: peer.unary(ask(key, failures=1, late_status=late), timeout=PATIENCE, metadata=tried))
        attempts = [entry["fields"].get("grpc-previous-rpc-attempts") for entry in peer.attempts(key)]
        assert error.code() == Code.UNAVAILABLE and attempts == ["4"], attempts

        # Attempts run out: the status received goes out.
        key = fresh()
        error = failure(lambda: peer.unary(ask(key, failures=9, late_status=late, details="why"), timeout=PATIENCE))
        assert (error.code(), error.details()) == (Code.UNAVAILABLE, "why"), error
        assert len(peer.attempts(key)) == 3, peer.attempts(key)

        # Another code is an answer.
        key = fresh()
        error = failure(lambda: peer.unary(ask(key, failures=9, late_status=late, code="ABORTED"), timeout=PATIENCE))
        assert error.code() == Code.ABORTED and len(peer.attempts(key)) == 1, peer.attempts(key)

        # Pushback below zero forbids, above zero is waited for.
        key = fresh()
        pushback = {"grpc-retry-pushback-ms": "-1"}
        error = failure(lambda: peer.unary(ask(key, failures=9, late_status=late, trailers=pushback), timeout=PATIENCE))
        assert error.code() == Code.UNAVAILABLE and len(peer.attempts(key)) == 1, peer.attempts(key)
        key = fresh()
        pushback = {"grpc-retry-pushback-ms": "700"}
        began = time.monotonic()
        peer.unary(ask(key, failures=1, late_status=late, trailers=pushback), timeout=PATIENCE)
        assert len(peer.attempts(key)) == 2, peer.attempts(key)
        assert time.monotonic() - began >= 0.7

    # One whose answer has begun is not.
    key = fresh()
    call = peer.stream(ask(key, count=1, then="UNAVAILABLE"), timeout=PATIENCE)
    assert json.loads(next(call)) == 0
    error = failure(lambda: next(call))
    assert (error.code(), error.details()) == (Code.UNAVAILABLE, "after messages"), error
    assert len(peer.attempts(key)) == 1, peer.attempts(key)


def case_full(peer):
    """One call is allowed at a time: while a stream is open, others are refused with words."""
    key = fresh()
    held = peer.stream(ask(key, count=2, pause=60))
    next(held)
    error = failure(lambda: peer.unary(ask(fresh()), timeout=PATIENCE))
    assert error.code() == Code.UNAVAILABLE, error
    assert "BulkheadFull" in error.details(), error.details()
    fields = metadata(error.trailing_metadata()) | metadata(error.initial_metadata())
    assert fields["grpc-retry-pushback-ms"] == "-1", fields
    assert "reason=BulkheadFull" in fields["proxy-status"], fields
    print(error.details())
    stream = peer.stream(ask(fresh(), count=1), timeout=PATIENCE)
    assert failure(lambda: next(stream)).code() == Code.UNAVAILABLE
    held.cancel()
    end = time.monotonic() + PATIENCE
    while True:
        try:
            peer.unary(ask(fresh()), timeout=PATIENCE)
            break
        except grpc.RpcError as refusal:
            assert refusal.code() == Code.UNAVAILABLE and time.monotonic() < end, refusal
    peer.wait_for(key, "cancelled")


def case_refused(peer):
    """Nobody is there; usage of the other argument: the word that the details must have."""
    error = failure(lambda: peer.unary(ask(fresh()), timeout=PATIENCE))
    assert error.code() == Code.UNAVAILABLE, error
    assert sys.argv[3] in error.details(), error.details()
    print(error.details())


def case_limited(peer):
    """`timeouts.request` is written: a unary call that takes longer is cut, and the handler is told."""
    key = fresh()
    began = time.monotonic()
    error = failure(lambda: peer.unary(ask(key, sleep=30), timeout=PATIENCE))
    took = time.monotonic() - began
    print(f"cut after {took:.2f} s: {error.details()}")
    # By the proxy, or by the server, which was told how long it has.
    assert error.code() == Code.DEADLINE_EXCEEDED and took < PATIENCE / 2, error
    peer.wait_for(key, "cancelled")


def case_paused(peer):
    """A message every five seconds for a minute: no built-in clock cuts it."""
    numbers = [json.loads(message) for message in peer.stream(ask(fresh(), count=13, pause=5))]
    assert numbers == list(range(13)), numbers


def case_briefly(peer):
    """The same in two seconds, for a route that says that it streams."""
    assert len(list(peer.stream(ask(fresh(), count=2, pause=2)))) == 2


def case_idle(peer):
    """Two messages with half a minute of silence between: no built-in clock cuts it."""
    turns = queue.Queue()
    answers = peer.echo(iter(turns.get, None))
    for message in (b"one", b"two"):
        turns.put(message)
        assert next(answers) == message
        time.sleep(30 if message == b"one" else 0)
    turns.put(None)
    assert list(answers) == []


peer = Peer(sys.argv[2])
peer.address = sys.argv[2]
for name in sys.argv[1].split(","):
    globals()[f"case_{name}"](peer)
print("ok")
