"""Open a user's table in any of the supported formats: text, compressed text, NumPy, Parquet or Excel.

A file with the suffix .npz is read as a NumPy file. Every other format is recognised from the content of the file.

The header of an array in an .npz file can declare any shape. Therefore, an array is read only if the file contains as
many bytes as the shape requires and this machine has enough memory.
"""

from __future__ import annotations

import bz2
import codecs
import contextlib
import gzip
import io
import lzma
import math
import re
import struct
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from lzma import LZMAError
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import numpy as np

from proxlearn.data.csv_file import TableFormat
from proxlearn.errors import InputError, did_you_mean
from proxlearn.portability import physical_memory
from proxlearn.terminal.streams import notice

HEADER_READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
READ_ERRORS = (
    *(ValueError, OSError, EOFError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError),
    *(SyntaxError, struct.error, zlib.error, LZMAError, zipfile.BadZipFile),
    # zipfile raises these errors for an encrypted file and for an unknown compression method.
    *(RuntimeError, NotImplementedError),
)


def read_npz_table(path: Path, content: bytes, target: str | None) -> tuple[np.ndarray, np.ndarray, list[str], str]:
    """Return the features, the target values, the feature names and the target name of an .npz file.

    The target values are in the array ``target``, or in the array ``y`` if ``target`` is None. The feature names are in
    the array ``columns``; if the file does not contain this array, they are x0, x1, ...
    """
    target = target or "y"
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
            arrays = {name: _read_array(archive, name) for name in ("X", "columns", target) if name in names}
    except READ_ERRORS as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(
            f"{path} cannot be read: {reason:.100}", "save plain arrays with numpy.savez(path, X=X, y=y)"
        ) from error
    for name in ("X", target):
        if name not in arrays:
            raise InputError(f"{path} has no array `{name}`", did_you_mean(name, names))
    X, values = arrays["X"], arrays[target]
    if X.ndim != 2 or X.dtype.kind not in "biuf":
        raise InputError(
            f"{path}: X must be a matrix of numbers, got an array of dtype {X.dtype} and shape {X.shape}",
            "save X as an array of shape (rows, features)",
        )
    if values.shape != (len(X),) or values.dtype.kind not in "biufU":
        raise InputError(
            f"{path}: `{target}` must be an array of numbers or strings of shape ({len(X)},), got an array of dtype "
            f"{values.dtype} and shape {values.shape}",
            "save one value per row of X",
        )
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        row = int((~np.isfinite(values)).argmax()) + 1
        raise InputError(f"{path}: `{target}` is not finite in row {row}", "correct the value, or delete the row")
    columns = [str(name) for name in np.atleast_1d(arrays.get("columns", [f"x{i}" for i in range(X.shape[1])]))]
    if len(columns) != X.shape[1]:
        raise InputError(
            f"{path}: the number of names in `columns` is {len(columns)}, but X has the shape {X.shape}",
            "save one name per column of X",
        )
    return np.ascontiguousarray(X, dtype=np.float64), values, columns, target


def _read_array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """Return an array of an .npz file; raise ValueError if the array is damaged, not supported or too large."""
    entry = archive.getinfo(f"{name}.npy")
    with archive.open(entry) as file:
        version = np.lib.format.read_magic(file)
        if version not in HEADER_READERS:
            raise ValueError(f"array `{name}` has the unsupported format version {version}")
        shape, is_fortran, dtype = HEADER_READERS[version](file)
        if dtype.hasobject:
            raise ValueError(f"array `{name}` contains Python objects")
        size = math.prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or file.tell() + size != entry.file_size:
            raise ValueError(f"array `{name}` declares the shape {shape}, which does not match its number of bytes")
        # The conversion to float64 makes a second copy.
        if 2 * size > physical_memory():
            raise ValueError(f"array `{name}` needs {2 * size} bytes of memory, which is more than this machine has")
        content = file.read(size)
        # Reading beyond the last byte makes zipfile compare the checksum.
        if len(content) != size or file.read(1):
            raise ValueError(f"array `{name}` is truncated")
    array: np.ndarray = np.frombuffer(content, dtype).reshape(shape, order="F" if is_fortran else "C")
    return array


COMPRESSED: dict[bytes, Callable[[BinaryIO], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}
"""Functions that open a compressed file for reading, by the bytes with which the file begins."""
ZIP, PARQUET, OLD_EXCEL = b"PK\x03\x04", b"PAR1", b"\xd0\xcf\x11\xe0"
ENCRYPTED = 1
"""The bit in the flags of a file in a zip archive that states that the file is encrypted."""
DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, RuntimeError, NotImplementedError)
"""Errors that the decompressors raise for a damaged or unsupported file."""
EXTRAS = {"Parquet": ("pyarrow", "parquet"), "Excel": ("openpyxl", "excel")}
"""The package that reads each format, and the extra of proxlearn that installs this package."""
BLOCK = 2**20
"""Number of bytes that are decompressed or decoded at once."""
MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""Encodings by byte order mark; UTF-32 comes before UTF-16, whose mark is also the beginning of the mark of UTF-32."""
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
"""Characters that occur in binary files, but not in text tables."""


def open_table(file: BinaryIO, name: Path | str, form: TableFormat | None = None) -> Any:
    """Open the table in a seekable file; return a text stream or, for Parquet and Excel, a pandas data frame.

    ``name`` denotes the file in messages. ``form`` states the position of the header line of an Excel file; in a text
    stream, the caller finds the header line.
    """
    start = file.read(8)
    file.seek(0)
    for mark, decompress in COMPRESSED.items():
        if start.startswith(mark):
            return _open_temporary(_decompress(decompress(file), name), name, form)
    if start.startswith(ZIP):
        return _open_zip(file, name, form or TableFormat())
    if start.startswith(PARQUET):
        return _read_parquet(file, name)
    if start.startswith(OLD_EXCEL):
        raise InputError(f"{name} is in the old Excel format .xls", "save it as .xlsx or .csv")
    return open_text(file, name)


def open_text(file: BinaryIO, name: Path | str = "the table") -> TextIO:
    """Return a text stream that decodes UTF-8, UTF-16, UTF-32 or cp1252, and leaves line ends unchanged."""
    return io.TextIOWrapper(file, encoding=_detect_encoding(file, name), newline="")


def _detect_encoding(file: BinaryIO, name: Path | str) -> str:
    """Return the encoding of a text file, and move the file position to the start.

    Print a notice if the encoding is cp1252; raise InputError if it is none of the supported encodings.
    """
    start = file.read(1024)
    file.seek(0)
    for mark, encoding in MARKS.items():
        if start.startswith(mark):
            return encoding
    for encoding, zeros in (("utf-16-le", start[1::2]), ("utf-16-be", start[::2])):
        # In ASCII text that is encoded as UTF-16 without a mark, every other byte is 0.
        if len(start) > 3 and not any(zeros):
            return encoding
    failure = _first_undecodable(file, "utf-8")
    if failure is None:
        return "utf-8"
    if _first_undecodable(file, "cp1252") is None:
        notice(f"{name} is not UTF-8 text (byte 0x{failure:02x}); it is read as cp1252, a Windows encoding")
        return "cp1252"
    raise InputError(
        f"{name} is neither UTF-8 text (byte 0x{failure:02x}) nor cp1252 text", "save it as a .csv file in UTF-8"
    )


def _first_undecodable(file: BinaryIO, encoding: str) -> int | None:
    """Return the first byte that cannot be decoded, or None if all can be; move the file position to the start.

    For an encoding other than UTF-8, a control character means that the file is not a text file, and 0 is returned.
    """
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        while block := file.read(BLOCK):
            text = decoder.decode(block)
            if encoding != "utf-8" and CONTROL.search(text):
                return 0
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        return int(error.object[error.start])
    finally:
        file.seek(0)
    return None


def _open_zip(file: BinaryIO, name: Path | str, form: TableFormat) -> Any:
    """Open the table in a zip archive that contains a single file, or in an Excel file, which is also a zip archive."""
    with _damage_as_input_error(name):
        archive = zipfile.ZipFile(file)
        members = [member.filename for member in archive.infolist() if not member.is_dir()]
    if "[Content_Types].xml" in members:
        file.seek(0)
        return _read_excel(file, name, form)
    tables = [member for member in members if not member.startswith("__MACOSX/") and Path(member).name[0] != "."]
    if len(tables) != 1:
        listed = ", ".join(tables[:5]) + (", ..." if len(tables) > 5 else "")
        problem = f"{name} must contain a single file, not {len(tables)}" + (f" ({listed})" if tables else "")
        raise InputError(problem, "extract the archive, and give the path of the file with the table")
    if archive.getinfo(tables[0]).flag_bits & ENCRYPTED:
        raise InputError(f"{name} is encrypted", "extract the archive, and give the path of the file with the table")
    with _damage_as_input_error(name):
        member = archive.open(tables[0])
    return _open_temporary(_decompress(member, name), name, form)


def _open_temporary(file: BinaryIO, name: Path | str, form: TableFormat | None) -> Any:
    """Open the table in a temporary file, as ``open_table`` does.

    If the result is a text stream, closing the stream closes the file. Otherwise, the file is closed immediately.
    """
    with contextlib.ExitStack() as unused:
        unused.callback(file.close)
        opened = open_table(file, name, form)
        if hasattr(opened, "readline"):
            unused.pop_all()
    return opened


def _decompress(stream: Any, name: Path | str) -> BinaryIO:
    """Copy the content of a decompressing stream to a temporary file, in which the header can be read repeatedly."""
    with contextlib.ExitStack() as failed:
        spool: Any = failed.enter_context(tempfile.TemporaryFile())
        size = 0
        with _damage_as_input_error(name), stream:
            while block := stream.read(BLOCK):
                size += len(block)
                # A few compressed bytes can expand to any number of bytes.
                if size > physical_memory():
                    raise InputError(
                        f"{name} does not fit in the memory of this machine", "give a table with fewer rows"
                    )
                spool.write(block)
        spool.seek(0)
        failed.pop_all()
    copy: BinaryIO = spool
    return copy


@contextlib.contextmanager
def _damage_as_input_error(name: Path | str) -> Iterator[None]:
    try:
        yield
    except DAMAGE as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"{name} cannot be decompressed: {reason:.100}", "give an undamaged file") from error


def _require(kind: str, name: Path | str) -> None:
    """Raise InputError if the package that reads a format is not installed."""
    package, extra = EXTRAS[kind]
    if find_spec(package) is None:
        problem = f"{name} is in {kind} format, and the package {package}, which reads it, is not installed"
        raise InputError(problem, f"run `pip install 'proxlearn[{extra}]'`, or save the table as a .csv file")


def _read_parquet(file: BinaryIO, name: Path | str) -> Any:
    import pandas as pd

    _require("Parquet", name)
    from pyarrow import parquet

    try:
        _check_distinct(parquet.read_schema(file).names, name)
        file.seek(0)
        frame = pd.read_parquet(file)
    except InputError:
        raise
    except Exception as error:
        raise _unreadable(name, "Parquet", error) from error
    named_index = any(level is not None for level in frame.index.names)
    frame = frame.reset_index(allow_duplicates=True) if named_index else frame.reset_index(drop=True)
    return _with_text_names(frame, name)


def _read_excel(file: BinaryIO, name: Path | str, form: TableFormat) -> Any:
    import pandas as pd

    _require("Excel", name)
    try:
        with pd.ExcelFile(file, engine="openpyxl") as book:
            sheets = book.sheet_names
            header = 0 if form.header else None
            frame = pd.read_excel(book, sheet_name=sheets[0], header=header, skiprows=form.skip_lines)
    except Exception as error:
        raise _unreadable(name, "Excel", error) from error
    if len(sheets) > 1:
        notice(f"{name} has {len(sheets)} sheets; only the first one, `{sheets[0]}`, is read")
    if not form.header:
        return frame.set_axis([f"c{i + 1}" for i in range(len(frame.columns))], axis="columns")
    return _with_text_names(frame, name)


def _with_text_names(frame: Any, name: Path | str) -> Any:
    """Return the data frame with its column names converted to strings; raise InputError if two of them are equal."""
    names = [str(column) for column in frame.columns]
    _check_distinct(names, name)
    return frame.set_axis(names, axis="columns")


def _check_distinct(columns: list[str], name: Path | str) -> None:
    """Raise InputError if two columns have the same name, such as the number 1 and the text 1 in an Excel file."""
    repeated = next((column for column, count in Counter(columns).items() if count > 1), None)
    if repeated is not None:
        raise InputError(f"{name} has several columns called `{repeated}`", "give every column a different name")


def _unreadable(name: Path | str, kind: str, error: Exception) -> InputError:
    """Return the InputError for a file that cannot be read in its format, with the reason that ``error`` states."""
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    return InputError(f"{name} cannot be read as {kind}: {reason:.100}", "save the table as a .csv file")
