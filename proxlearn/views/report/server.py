"""A page that keeps itself up to date: a small server, for this machine and this page only."""

from __future__ import annotations

import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from proxlearn.errors import ProxlearnError
from proxlearn.views.report.page import Builder, as_json, render_page

HOST = "127.0.0.1"


class Server(ThreadingHTTPServer):
    """Answers on the loopback interface; every answer is made from the folders as they are then."""

    daemon_threads = True

    def __init__(self, builder: Builder, port: int) -> None:
        super().__init__((HOST, port), Handler)
        self._builder, self._lock = builder, threading.Lock()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_port}/"

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names under which a page may ask: another one is a foreign page whose name was made to point here."""
        return tuple(f"{name}:{self.server_port}" for name in (HOST, "localhost"))

    def data(self) -> dict[str, Any]:
        with self._lock:
            return self._builder.data()


class Handler(BaseHTTPRequestHandler):
    """``/`` is the page, ``/data.json`` what it asks for later; everything else is nothing."""

    server: Server
    server_version = "proxlearn"

    def do_GET(self) -> None:
        if self.headers.get("Host") not in self.server.hosts:
            self._answer(HTTPStatus.FORBIDDEN, "text/plain", "not for this host\n")
        elif self.path not in ("/", "/data.json"):
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", "there is / and /data.json\n")
        else:
            self._from_folders()

    def _from_folders(self) -> None:
        try:
            data = self.server.data()
        except ProxlearnError as error:
            # The folder may be gone, or be written anew: the page says so, and asks again.
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", f"{error}\n")
            return
        if self.path == "/":
            self._answer(HTTPStatus.OK, "text/html", render_page(data, watch=True))
        else:
            self._answer(HTTPStatus.OK, "application/json", as_json(data | {"watch": True}))

    def _answer(self, status: HTTPStatus, kind: str, text: str) -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """The terminal stays as it is."""
