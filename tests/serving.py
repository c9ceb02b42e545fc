"""A server on this machine that cuts connections, forgets ranges and changes its files, as asked."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server(ThreadingHTTPServer):
    """Serves ``files``; the next answers end after the bytes in ``cuts``; ``log`` has the Range of every request."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.cuts: list[int] = []
        self.log: list[str] = []
        self.sent = 0
        self.tag = '"1"'
        self.ranges = True
        self.length = True
        self.moved: dict[str, str] = {}

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{name}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server, path = self.server, self.path.strip("/")
        asked = self.headers.get("Range", "")
        server.log.append(asked)
        if path in server.moved:
            self.send_response(302)
            self.send_header("Location", server.moved[path])
            self.end_headers()
            return
        if path not in server.files:
            self.send_error(404)
            return
        content = server.files[path]
        start = int(asked[6:-1]) if asked and server.ranges else 0
        if start and self.headers.get("If-Range", server.tag) != server.tag:
            start = 0  # it has changed
        if start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        if server.tag:
            self.send_header("ETag", server.tag)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if server.length:
            self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        part = content[start:][: server.cuts.pop(0) if server.cuts else None]
        server.sent += len(part)
        self.wfile.write(part)

    def log_message(self, *_: object) -> None:
        pass
