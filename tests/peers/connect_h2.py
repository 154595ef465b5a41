"""Asks a forward proxy for tunnels over HTTP/2 (RFC 9113 8.5) and speaks HTTP/1.1 in them; usage: connect_h2.py PROXY
TARGET."""
import socket
import sys

import h2.config
import h2.connection
import h2.events

host, port = sys.argv[1].rsplit(":", 1)
target = sys.argv[2]
wire = socket.create_connection((host, int(port)), timeout=20)
connection = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
connection.initiate_connection()

streams = [1, 3, 5]
for stream in streams:
    connection.send_headers(stream, [(":method", "CONNECT"), (":authority", target)])
wire.sendall(connection.data_to_send())

received = {}
ended = set()
while ended != set(streams):
    data = wire.recv(65536)
    assert data, "the connection ended"
    for event in connection.receive_data(data):
        if isinstance(event, h2.events.ResponseReceived):
            assert dict(event.headers)[":status"] == "200", event.headers
            request = f"GET /hello HTTP/1.1\r\nHost: {target}\r\nConnection: close\r\n\r\n"
            received[event.stream_id] = b""
            # The tunnel's own end goes with the request: half of it is closed, and the answer still comes.
            connection.send_data(event.stream_id, request.encode(), end_stream=event.stream_id == 5)
        elif isinstance(event, h2.events.DataReceived):
            received[event.stream_id] += event.data
            connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            ended.add(event.stream_id)
        assert not isinstance(event, (h2.events.StreamReset, h2.events.ConnectionTerminated)), event
    wire.sendall(connection.data_to_send())
for stream in streams:
    assert received[stream].startswith(b"HTTP/1.1 200") and received[stream].endswith(b"hello"), received
print("ok")
