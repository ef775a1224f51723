"""Functions that damage or forge files at random, as disks, editors, other programs and attackers may do."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

ODD = (None, True, "x", "", [], {}, [[]], {"a": 1}, float("nan"), float("inf"), 1e308, -1, 0, 10**30, 0.5, "\ud800")
CELLS = ("", "x", "nan", "inf", "-inf", "1e308", "-1", "9" * 400, "0.5", '"', "\0", "é", "True", "1e400", "999999999")
LARGE = 100 * 10**9

Damage = Callable[[random.Random, Path], None]


def cut(draw: random.Random, path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: draw.randrange(len(content) + 1)])


def flip(draw: random.Random, path: Path) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(draw.choice((1, 1, 3, 30))):
        if content:
            content[draw.randrange(len(content))] = draw.randrange(256)
    path.write_bytes(bytes(content))


def insert(draw: random.Random, path: Path) -> None:
    content = path.read_bytes()
    place = draw.randrange(len(content) + 1)
    noise = draw.choice((b"\0" * 9, b"[" * 5000, b"\xff\xfe", b"{", b"\n\n", b"&a ", b"*a", b"9" * 5000, b"!!int ''"))
    path.write_bytes(content[:place] + noise + content[place:])


def repeat(draw: random.Random, path: Path) -> None:
    path.write_bytes(path.read_bytes() * 2)


def replace(draw: random.Random, path: Path) -> None:
    deep = b"[" * 900 + b"]" * 900
    path.write_bytes(
        draw.choice((b"", b"{}", b"[]", b"null", b"5", b"\x80\x04.", b"a: &a [1]\nb: *a\n", deep, b"PK\3\4"))
    )


def remove(draw: random.Random, path: Path) -> None:
    path.unlink()


def grow(draw: random.Random, path: Path) -> None:
    """Extend a file to LARGE bytes; the file is sparse, so it takes up no disk space."""
    os.truncate(path, LARGE)


def other_kind(draw: random.Random, path: Path) -> None:
    copy = path.with_name(f"{path.name}.copy")
    path.rename(copy)
    kind = draw.randrange(4)
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        path.symlink_to(copy)
    elif kind == 2:
        path.symlink_to("nowhere")
    else:
        path.mkdir()


def alter_values(draw: random.Random, path: Path) -> None:
    """Replace or remove one value in a valid JSON or YAML file."""
    is_json = path.suffix == ".json"
    values = json.loads(path.read_text()) if is_json else yaml.safe_load(path.read_text())
    node: Any = values
    while True:
        key = draw.choice(list(node) if isinstance(node, dict) else range(len(node)))
        below = node[key]
        if not isinstance(below, dict | list) or not below or draw.random() < 0.3:
            break
        node = below
    if draw.random() < 0.2:
        del node[key]
    else:
        node[key] = draw.choice(ODD)
    path.write_text(json.dumps(values) if is_json else yaml.safe_dump(values))


def alter_table(draw: random.Random, path: Path) -> None:
    """Change, add or remove cells, columns or rows of a CSV file."""
    rows = [line.split(",") for line in path.read_text().splitlines()]
    kind = draw.randrange(6)
    column = draw.randrange(len(rows[0]))
    if kind == 0:
        rows = [row[:column] + row[column + 1 :] for row in rows]
    elif kind == 1:
        rows = [[*row, draw.choice(CELLS)] for row in rows]
    elif kind == 2:
        draw.choice(rows).append("7")
    elif kind == 3:
        rows = rows[: draw.randrange(len(rows) + 1)]
    elif kind == 4:
        for row in rows[1:]:
            row[column] = draw.choice(CELLS)
    else:
        draw.choice(rows)[column] = draw.choice(CELLS)
    path.write_text(draw.choice(("\n", "\n", "\r\n")).join(",".join(row) for row in rows) + draw.choice(("\n", "")))


def forge(draw: random.Random, path: Path) -> None:
    """Replace a checkpoint with a forged one that has another header or state and a matching checksum."""
    from tests.run.test_hostile import resealed

    def change(header: dict[str, Any]) -> None:
        if draw.random() < 0.5:
            state = json.loads(header["__metadata__"]["state"])
            state[draw.choice(list(state))] = draw.choice(ODD)
            header["__metadata__"]["state"] = json.dumps(state)
            return
        name = draw.choice([name for name in header if name != "__metadata__"])
        key = draw.choice(("dtype", "shape", "data_offsets"))
        odd = {"dtype": ("I8", "F16", "BOOL"), "shape": ([10**12], [0, 3], [-1]), "data_offsets": ([0, 10**15], [9, 1])}
        header[name][key] = draw.choice((*ODD, *odd[key]))

    path.write_bytes(resealed(path.read_bytes(), change))


def damages_of(path: Path) -> list[Damage]:
    """Return the kinds of damage that can be done to a file of this kind."""
    every: list[Damage] = [cut, flip, insert, repeat, replace, remove, grow, other_kind]
    special = {".json": alter_values, ".yaml": alter_values, ".csv": alter_table, ".safetensors": forge}
    # Damages that keep the file valid JSON, YAML, CSV or safetensors pass more checks, so they are drawn more often.
    return every + [special[path.suffix]] * len(every) if path.suffix in special else every


def damaged_copy(draw: random.Random, source: Path, copy: Path) -> str:
    """Copy a folder, damage one to three files in the copy, and return a description of the damage."""
    shutil.copytree(source, copy)
    files = sorted(path for path in copy.rglob("*") if path.suffix in (".json", ".yaml", ".csv", ".safetensors"))
    descriptions = []
    for path in draw.sample(files, draw.choice((1, 1, 1, 2, 3))):
        damage = draw.choice(damages_of(path))
        damage(draw, path)
        descriptions.append(f"{damage.__name__} {path.relative_to(copy)}")
    return ", ".join(descriptions)
