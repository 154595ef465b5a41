"""Opens WebSocket tunnels by extended CONNECT (RFC 8441); usage: websocket_h2.py ADDRESS raw|messages.

A server that sends back bytes gets bytes (`raw`), one that sends back messages gets those.
"""
import socket
import sys

import h2.config
import h2.connection
import h2.events
import h2.settings

host, port = sys.argv[1].rsplit(":", 1)
wire = socket.create_connection((host, int(port)), timeout=20)
connection = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
connection.initiate_connection()
wire.sendall(connection.data_to_send())


def events():
    while True:
        received = wire.recv(65536)
        assert received, "the connection ended"
        yield from connection.receive_data(received)
        wire.sendall(connection.data_to_send())


def wait_for(kind, accept=lambda event: True):
    for event in events():
        assert not isinstance(event, (h2.events.StreamReset, h2.events.ConnectionTerminated)), event
        if isinstance(event, kind) and accept(event):
            return event


wait_for(h2.events.RemoteSettingsChanged)
assert connection.remote_settings.enable_connect_protocol == 1, "extended CONNECT was not offered"


def fields(protocol):
    return [(":method", "CONNECT"), (":protocol", protocol), (":scheme", "http"), (":path", "/chat"),
            (":authority", sys.argv[1]), ("sec-websocket-version", "13"), ("origin", "http://test.internal")]


def open_stream(protocol):
    stream = connection.get_next_available_stream_id()
    connection.send_headers(stream, fields(protocol))
    wire.sendall(connection.data_to_send())
    answer = wait_for(h2.events.ResponseReceived, lambda event: event.stream_id == stream)
    return stream, dict(answer.headers)[":status"]


def echoed(stream, size):
    received = b""
    while len(received) < size:
        event = wait_for(h2.events.DataReceived, lambda event: event.stream_id == stream)
        connection.acknowledge_received_data(event.flow_controlled_length, stream)
        wire.sendall(connection.data_to_send())
        received += event.data
    return received


def framed(message):
    """A text message as a client sends it, masked, and as it comes back."""
    mask = b"\x01\x02\x03\x04"
    masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(message))
    return b"\x81" + bytes([0x80 | len(message)]) + mask + masked, b"\x81" + bytes([len(message)]) + message


tunnels = []
for _ in range(3):
    stream, status = open_stream("websocket")
    assert status == "200", status
    tunnels.append(stream)
# Bytes flow both ways while the streams are open, and on each stream its own.
for turn in range(5):
    for stream in tunnels:
        message = b"tunnel %d turn %d " % (stream, turn)
        sent, back = framed(message) if sys.argv[2] == "messages" else (message * 500, message * 500)
        connection.send_data(stream, sent)
        wire.sendall(connection.data_to_send())
        assert echoed(stream, len(back)) == back
for stream in tunnels:
    if sys.argv[2] == "messages":
        connection.send_data(stream, b"\x88\x82\x00\x00\x00\x00\x03\xe8")
    else:
        connection.end_stream(stream)
    wire.sendall(connection.data_to_send())
    wait_for(h2.events.StreamEnded, lambda event: event.stream_id == stream)
print("ok")
