"""``proxlearn report <folder>...``: one HTML page about runs and sweeps, to look at and to send on."""

from __future__ import annotations

import argparse
from pathlib import Path

from proxlearn.errors import InputError
from proxlearn.run.output_file import check_output, check_replaced, is_written_through, write_output
from proxlearn.terminal.notice import notice
from proxlearn.train_session import echo

DESCRIPTION = """\
Write one self-contained HTML page about runs and sweeps: results, curves, weights, and the cloud over the recursions.
It opens from disk, without a network. With --watch the page is served on this machine (127.0.0.1) instead, and
refreshes itself while the runs go on; Ctrl-C ends it."""

PAGE_MARK = b'<p>Curves and the cloud need JavaScript.</p></main></noscript>\n<div id="page" hidden>'
"""In every page since version 0.1.0."""


def main(args: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="proxlearn report", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folders", nargs="+", type=Path, metavar="FOLDER", help="runs or sweeps, for example outputs/sweeps/NAME"
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="where to (default: report.html, in a single folder itself)"
    )
    parser.add_argument("-w", "--watch", action="store_true", help="serve the page here, and keep it up to date")
    parser.add_argument("--port", type=int, default=0, metavar="PORT", help="for --watch (default: a free one)")
    options = parser.parse_args(args)
    folders: list[Path] = options.folders
    for folder in folders:
        if not folder.is_dir():
            raise InputError(f"no folder {folder}", "name one that `proxlearn train` made")
    if options.watch:
        return watch(folders, options.port)
    output: Path = options.output or (folders[0] if len(folders) == 1 else Path()) / "report.html"
    check_output(output)
    if options.output is None:
        check_replaced(output, lambda content: PAGE_MARK in content, "report")
    from proxlearn.views.report.page import Builder, render_page

    write_output(output, render_page(Builder(folders).data(progress=True)).encode())
    if not is_written_through(output):
        echo(f"{output}\n")
    return 0


def watch(folders: list[Path], port: int) -> int:
    """Serve the page until Ctrl-C."""
    from proxlearn.views.report.page import Builder
    from proxlearn.views.report.server import Server

    builder = Builder(folders)
    # What is wrong with a folder is told here, and not in a browser.
    builder.data(progress=True)
    try:
        server = Server(builder, port)
    except (OSError, OverflowError) as error:
        raise InputError(f"cannot serve on port {port}: {error}", "choose another --port, or none") from error
    with server:
        print(server.url, flush=True)
        notice("open this address in a browser; Ctrl-C ends it")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0
