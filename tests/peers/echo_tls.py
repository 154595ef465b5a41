"""Echoes what comes inside TLS, and ends when its caller has ended: echo_tls.py CERTIFICATE KEY; prints its port."""

import socket
import ssl
import sys
import threading


def serve(connection):
    with context.wrap_socket(connection, server_side=True, suppress_ragged_eofs=False) as inside:
        while piece := inside.recv(1 << 16):
            inside.sendall(piece)
        inside.sendall(b"end")
        # Answers the caller's close_notify with its own.
        inside.unwrap()


context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
listener = socket.create_server(("127.0.0.1", 0))
print("port", listener.getsockname()[1], flush=True)
while True:
    accepted, _ = listener.accept()
    threading.Thread(target=serve, args=(accepted,), daemon=True).start()
