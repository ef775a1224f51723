"""``proxlearn report <folder>...``: write one HTML page about runs and sweeps."""

from __future__ import annotations

from pathlib import Path

from proxlearn.errors import InputError
from proxlearn.run.user_output_file import check_output, check_replaced, is_written_through, write_output
from proxlearn.terminal.argument_parser import command_parser
from proxlearn.terminal.streams import notice
from proxlearn.train_and_draw import echo

DESCRIPTION = """\
Write one HTML page about runs and sweeps: results, curves, weights, and the cloud at every stored step. The page is one
file that opens without a network or a server, so it can be sent to others.

With --watch, no file is written; the page is served on this machine (127.0.0.1) and updates itself while the runs
continue. Ctrl-C ends the server."""
EXAMPLES = """\
  proxlearn report outputs/wdbc/NAME                     report.html in the run folder
  proxlearn report outputs/sweeps/NAME -o sweep.html     all runs of a sweep on one page
  proxlearn report outputs/wdbc/A outputs/wdbc/B         runs side by side: report.html in the current folder
  proxlearn report --watch outputs/wdbc/NAME             follow a run in the browser
"""

PAGE_MARK = b'<p>Curves and the cloud need JavaScript.</p></main></noscript>\n<div id="page" hidden>'
"""Text in every page that `proxlearn report` has written since version 0.1.0, by which such a page is recognised."""


def main(args: list[str]) -> int:
    parser = command_parser("report", DESCRIPTION, EXAMPLES)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="a run folder or a sweep folder")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="the page to write (default: report.html in the given folder; for several folders, in the current folder)",
    )
    parser.add_argument("-w", "--watch", action="store_true", help="serve the page on this machine and update it")
    parser.add_argument("--port", type=int, default=0, metavar="PORT", help="port for --watch (default: any free port)")
    options = parser.parse_args(args)
    folders: list[Path] = options.folders
    for folder in folders:
        if not folder.is_dir():
            raise InputError(f"the folder {folder} does not exist", "give a folder that `proxlearn train` created")
    if options.watch:
        return watch(folders, options.port)
    output: Path = options.output or (folders[0] if len(folders) == 1 else Path()) / "report.html"
    check_output(output)
    if options.output is None:
        check_replaced(output, lambda content: PAGE_MARK in content, "report")
    from proxlearn.views.report.page import PageBuilder, render_page

    write_output(output, render_page(PageBuilder(folders).data(progress=True)).encode())
    if not is_written_through(output):
        echo(f"{output}\n")
    return 0


def watch(folders: list[Path], port: int) -> int:
    """Serve the page on this machine until Ctrl-C, and return the exit code."""
    from proxlearn.views.report.page import PageBuilder
    from proxlearn.views.report.server import ReportServer

    builder = PageBuilder(folders)
    # An unreadable folder is reported here, before the server starts.
    builder.data(progress=True)
    try:
        server = ReportServer(builder, port)
    except (OSError, OverflowError) as error:
        raise InputError(
            f"cannot serve on port {port}: {error}", "choose another --port, or leave out --port"
        ) from error
    with server:
        print(server.url, flush=True)
        notice("open this address in a browser; Ctrl-C stops the server")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0
