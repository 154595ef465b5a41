"""A server over TLS that says which connection a call came on.

Usage: server_tls.py CERT KEY [CA [PROTOCOL]]; with CA it wants a client certificate, with PROTOCOL it chooses that by
ALPN. Prints its port. Answers with
"CONNECTION CALL SNI BYTES" (numbers from 1); what a path does beside that is said where it is done.
"""
import itertools
import socket
import ssl
import sys
import threading

context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
context.num_tickets = 4
if len(sys.argv) > 3:
    context.load_verify_locations(sys.argv[3])
    context.verify_mode = ssl.CERT_REQUIRED
if len(sys.argv) > 4:
    context.set_alpn_protocols([sys.argv[4]])
names = {}
context.sni_callback = lambda tls, name, _: names.__setitem__(tls, name)
numbers = itertools.count(1)
# Never: a connection that was left stays open beneath its session.
left = threading.Event()


def read_call(file):
    """The target and the body of one request; None at the end."""
    line = file.readline()
    if not line:
        return None
    length = 0
    while (field := file.readline().strip()):
        name, _, value = field.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return line.split()[1].decode(), file.read(length)


def serve(raw):
    tls = context.wrap_socket(raw, server_side=True)
    number = next(numbers)
    file = tls.makefile("rb")
    for call in itertools.count(1):
        asked = read_call(file)
        if asked is None:
            return
        path, body = asked
        said = f"{number} {call} {names.get(tls)} {len(body)}".encode()
        if path == "/echo":
            said = body
        if path in ("/cut", "/end"):
            # A body that only the end of the connection ends: cut without close_notify, or in order.
            tls.sendall(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + said)
            if path == "/end":
                tls.unwrap()
            raw = tls if path == "/end" else socket.socket(fileno=tls.detach())
            raw.shutdown(socket.SHUT_WR)
            return
        head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(said)}\r\n\r\n".encode()
        if path == "/leave":
            # An end in order that close_notify alone announces, in one segment with the answer.
            tls.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
            tls.sendall(head + said)
            tls.setblocking(False)
            try:
                tls.unwrap()
            except ssl.SSLWantReadError:
                pass
            tls.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
            left.wait()
            return
        tls.sendall(head + said)


def guarded(raw):
    try:
        serve(raw)
    except (OSError, ssl.SSLError):
        pass


listener = socket.create_server(("127.0.0.1", 0))
print("port", listener.getsockname()[1], flush=True)
while True:
    connection, _ = listener.accept()
    threading.Thread(target=guarded, args=[connection], daemon=True).start()
