"""A small service on Python's own http.server. Prints its port. The same few paths as its siblings in this folder."""
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Service(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        if self.path == "/hello":
            self.answer(b"hello")
        elif self.path == "/big":
            self.answer(b"x" * 1_000_000)
        elif self.path == "/chunked":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for _ in range(100):
                self.wfile.write(b"a\r\n0123456789\r\n")
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.send_error(404)

    do_HEAD = do_GET

    def do_POST(self):
        self.answer(self.rfile.read(int(self.headers["Content-Length"])))

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
print("port", server.server_address[1], flush=True)
server.serve_forever()
