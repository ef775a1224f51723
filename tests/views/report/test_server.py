"""The server of a watched page serves its own page on this machine, and nothing else."""

import http.client
import json
import shutil
import signal
import subprocess
import sys

import pytest

from proxlearn.cli import main
from proxlearn.views.report import page
from tests.small_runs import run, small
from tests.views.report.pages import serving


@pytest.fixture
def folder(tmp_path):
    run(small(steps=10), tmp_path / "run")
    return tmp_path / "run"


def request(port: int, path: str, host: str | None = None, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(method, path, headers={"Host": f"127.0.0.1:{port}" if host is None else host})
    response = connection.getresponse()
    status, text = response.status, response.read().decode()
    connection.close()
    return status, text


def test_the_page_and_newer_data(folder):
    with serving(folder) as server:
        port = server.server_port
        assert server.server_address[0] == "127.0.0.1"
        status, text = request(port, "/")
        assert (status, "connect-src 'self'" in text) == (200, True)
        assert json.loads(request(port, "/data.json")[1])["runs"][0]["step"] == 10
        run(small(steps=30), folder)
        assert json.loads(request(port, "/data.json")[1])["runs"][0]["cloud"]["steps"][-1] == 30
        shutil.move(folder, folder.with_name("elsewhere"))
        status, text = request(port, "/data.json")
        assert (status, "is not a run folder" in text) == (503, True)


@pytest.mark.parametrize("host", ["example.org", "127.0.0.1", "example.org:{port}", "localhost:1", "", "[::1]:{port}"])
def test_other_hosts_are_refused(folder, host):
    with serving(folder) as server:
        assert request(server.server_port, "/", host.format(port=server.server_port))[0] == 403
        assert request(server.server_port, "/", f"localhost:{server.server_port}")[0] == 200


@pytest.mark.parametrize("path", ["/config.yaml", "/../config.yaml", "/x", "/data.json?x", "/%2e%2e/status.json"])
def test_there_are_no_files(folder, path):
    with serving(folder) as server:
        assert request(server.server_port, path)[0] == 404
        assert request(server.server_port, "/", method="POST")[0] == 501


def test_a_cloud_is_read_again_only_when_there_is_a_newer_one(folder, monkeypatch):
    read = []
    original = page.cloud_payload
    monkeypatch.setattr(page, "cloud_payload", lambda *args: read.append(args) or original(*args))
    builder = page.PageBuilder([folder])
    assert builder.data() == builder.data()
    assert len(read) == 1
    run(small(steps=30), folder)
    assert builder.data()["runs"][0]["cloud"]["steps"][-1] == 30
    assert len(read) == 2


@pytest.fixture
def ctrl_c():
    """Restore the handler of SIGINT: tests started in the background, and their children, would ignore the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_is_how_it_ends(folder):
    command = [sys.executable, "-m", "proxlearn", "report", "--watch", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        url = server.stdout.readline().strip()
        assert request(int(url.rstrip("/").rpartition(":")[2]), "/data.json")[0] == 200
        server.send_signal(signal.SIGINT)
        _, stderr = server.communicate(timeout=20)
    assert server.returncode == 0
    assert "Ctrl-C stops the server" in stderr
    assert "Traceback" not in stderr


def test_a_port_in_use_gets_one_line(folder, capsys):
    with serving(folder) as server:
        assert main(["report", "--watch", "--port", str(server.server_port), str(folder)]) == 2
    assert "cannot serve on port" in capsys.readouterr().err
