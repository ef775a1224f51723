"""Download files over https."""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from dataclasses import dataclass

from proxlearn.data.dataset_files import DownloadFailed
from proxlearn.terminal.notice import notice

TIMEOUT = 30.0
"""Seconds without a response after which a download fails."""
NOTICE_SECONDS = 2.0
CHUNK = 1 << 16


@dataclass(frozen=True)
class Web:
    """A file on a web server; the progress of a long download is reported."""

    address: str

    def fetch(self, name: str) -> dict[str, bytes]:
        """Download the file, and return its content in a dictionary with the key ``name``."""
        try:
            with urllib.request.urlopen(self.address, timeout=TIMEOUT) as answer:
                return {name: self._content(name, answer)}
        except urllib.error.HTTPError as error:
            raise DownloadFailed(f"the server returned {error.code} {error.reason}") from error
        except urllib.error.URLError as error:
            raise DownloadFailed(f"the connection failed: {error.reason}") from error
        except (OSError, http.client.HTTPException) as error:
            raise DownloadFailed(f"the connection was lost: {error}") from error

    def _content(self, name: str, answer: http.client.HTTPResponse) -> bytes:
        chunks: list[bytes] = []
        last_notice = time.monotonic()
        while chunk := answer.read(CHUNK):
            chunks.append(chunk)
            if time.monotonic() - last_notice > NOTICE_SECONDS:
                last_notice = time.monotonic()
                notice(f"{name}: {sum(map(len, chunks)) / 1e6:.1f} MB received")
        if answer.length:
            raise DownloadFailed(f"the connection was lost {answer.length} bytes before the end")
        return b"".join(chunks)
