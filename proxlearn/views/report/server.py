"""The HTTP server of `proxlearn report --watch`, which is reachable only from this machine."""

from __future__ import annotations

import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from proxlearn.errors import ProxlearnError
from proxlearn.views.report.page import PageBuilder, as_json, render_page

HOST = "127.0.0.1"


class ReportServer(ThreadingHTTPServer):
    """An HTTP server on the loopback interface; every response shows the current contents of the folders."""

    daemon_threads = True

    def __init__(self, builder: PageBuilder, port: int) -> None:
        super().__init__((HOST, port), ReportRequestHandler)
        self._builder, self._lock = builder, threading.Lock()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_port}/"

    @property
    def hosts(self) -> tuple[str, ...]:
        """Accepted values of the Host header.

        Other values may come from a site whose DNS entry points to this machine.
        """
        return tuple(f"{name}:{self.server_port}" for name in (HOST, "localhost"))

    def data(self) -> dict[str, Any]:
        with self._lock:
            return self._builder.data()


class ReportRequestHandler(BaseHTTPRequestHandler):
    """The request handler that serves the page at ``/`` and its newest data at ``/data.json``, and nothing else."""

    server: ReportServer
    server_version = "proxlearn"

    def do_GET(self) -> None:
        if self.headers.get("Host") not in self.server.hosts:
            self._respond(HTTPStatus.FORBIDDEN, "text/plain", "the Host header is wrong; open the printed address\n")
        elif self.path not in ("/", "/data.json"):
            self._respond(HTTPStatus.NOT_FOUND, "text/plain", "this address does not exist; open / or /data.json\n")
        else:
            self._respond_with_data()

    def _respond_with_data(self) -> None:
        try:
            data = self.server.data()
        except ProxlearnError as error:
            # The folder may be absent while it is replaced; the page then shows the error and requests the data again.
            self._respond(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", f"{error}\n")
            return
        if self.path == "/":
            self._respond(HTTPStatus.OK, "text/html", render_page(data, watch=True))
        else:
            self._respond(HTTPStatus.OK, "application/json", as_json(data | {"watch": True}))

    def _respond(self, status: HTTPStatus, content_type: str, text: str) -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{content_type}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing, so that the terminal shows only the address."""
