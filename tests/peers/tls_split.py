"""Shakes hands by TLS with the ClientHello in small pieces; usage: tls_split.py HOST PORT NAME CA BYTES."""
import socket
import ssl
import sys
import time

host, port, name, authority, size = sys.argv[1:]
context = ssl.create_default_context(cafile=authority)
incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
tls = context.wrap_bio(incoming, outgoing, server_hostname=name)


def step(wire, action, pieces=None):
    """Does `action`, moving bytes as it asks for them."""
    while True:
        try:
            result = action()
        except ssl.SSLWantReadError:
            result = None
        data = outgoing.read()
        for start in range(0, len(data), pieces or len(data) or 1):
            wire.sendall(data[start:start + (pieces or len(data))])
            if pieces and start == 0:
                # Whoever reads has read the first piece before the second is sent.
                time.sleep(0.05)
        if result is not None:
            return result
        received = wire.recv(65536)
        if not received:
            raise ConnectionError("the connection ended")
        incoming.write(received)


with socket.create_connection((host, int(port)), timeout=20) as wire:
    # Each piece is a segment of its own.
    wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    step(wire, lambda: tls.do_handshake() or True, int(size))
    step(wire, lambda: tls.write(f"GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode()))
    answer = step(wire, lambda: tls.read(65536))
    assert answer.startswith(b"HTTP/1.1 200"), answer
print("ok")
