"""The result cache returns what was stored, under no other identity, and after every kind of damage."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxlearn.errors import InputError, NewerFormat
from proxlearn.files import atomic
from proxlearn.files.safe_read import UnreadableFile
from proxlearn.jobs import result_cache
from proxlearn.jobs.result_cache import HEADER, ResultCache, cache_key

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    SCALARS | TEXT, lambda below: st.lists(below, max_size=3) | st.dictionaries(TEXT, below, max_size=3), max_leaves=8
)
OBJECTS = st.dictionaries(TEXT, VALUES, max_size=4)
ONE, TWO = {"method": "adam", "revision": 1, "settings": {"rate": 0.1}}, {"method": "adam", "revision": 2}


def reordered(value):
    """Return the same value with the keys of every group in reverse order."""
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(value)}
    return [reordered(element) for element in value] if isinstance(value, list) else value


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(OBJECTS, OBJECTS), max_size=5))
def test_get_returns_what_was_put_last_in_this_process_and_in_the_next(puts) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "results.jsonl")
        cache = ResultCache(path)
        for identity, result in puts:
            cache.put(identity, result)
        expected = {cache_key(identity): result for identity, result in puts}
        for opened in (cache, ResultCache(path)):
            assert {record.key: record.result for record in opened} == expected
            assert len(opened) == len(expected)
            for identity, _ in puts:
                assert opened.get(identity) == expected[cache_key(identity)]
                assert identity in opened


@given(OBJECTS)
def test_the_key_does_not_depend_on_the_order_of_keys(identity) -> None:
    assert cache_key(reordered(identity)) == cache_key(identity)


@given(OBJECTS, OBJECTS)
def test_two_identities_have_one_key_only_if_they_are_the_same_json(first, second) -> None:
    same = json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)
    assert (cache_key(first) == cache_key(second)) == same


def test_an_identity_without_a_definite_value_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        cache_key({"rate": float("nan")})


def test_an_empty_or_absent_cache_has_no_results_and_reading_makes_no_file(tmp_path: Path) -> None:
    cache = ResultCache(tmp_path / "results.jsonl")
    assert cache.get(ONE) is None
    assert list(cache) == []
    assert not list(tmp_path.iterdir())


def test_a_result_cannot_be_changed_from_outside(tmp_path: Path) -> None:
    cache = ResultCache(tmp_path / "results.jsonl")
    values = {"figures": [1.0]}
    cache.put(ONE, values)
    values["figures"].append(2.0)
    cache.get(ONE)["figures"].append(3.0)
    assert cache.get(ONE) == {"figures": [1.0]}


@pytest.mark.parametrize("cut", [1, 10, 60, 100])
def test_a_torn_last_line_is_ignored_and_repaired(cut: int, tmp_path: Path, capsys) -> None:
    path = tmp_path / "results.jsonl"
    cache = ResultCache(path)
    cache.put(ONE, {"a": 1})
    intact = path.read_bytes()
    cache.put(TWO, {"a": 2})
    path.write_bytes(path.read_bytes()[: len(intact) + cut])
    again = ResultCache(path)
    assert (again.get(ONE), again.get(TWO)) == ({"a": 1}, None)
    assert capsys.readouterr().err == ""
    again.put(TWO, {"a": 3})
    assert path.read_bytes().startswith(intact)
    assert path.read_bytes().count(b"\n") == 3
    assert ResultCache(path).get(TWO) == {"a": 3}


def test_a_last_line_that_lacks_only_its_end_counts(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    ResultCache(path).put(ONE, {"a": 1})
    path.write_bytes(path.read_bytes()[:-1])
    cache = ResultCache(path)
    assert cache.get(ONE) == {"a": 1}
    cache.put(TWO, {"a": 2})
    assert len(ResultCache(path)) == 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda line: b"\n",
        lambda line: line[:20] + b"\n",
        lambda line: b"\xff" + line,
        lambda line: b"[" * 100_000 + b"\n",
        lambda line: b"null\n",
        lambda line: line.replace(b'"rate": 0.1', b'"rate": 0.2'),
        lambda line: line.replace(b'"revision": 1', b'"revision": 2'),
        lambda line: line.replace(b'"result": {"a": 1}', b'"result": 1'),
        lambda line: line.replace(b'"version"', b'"versions"'),
    ],
)
def test_a_damaged_line_is_skipped_with_a_notice_and_stays(damage, tmp_path: Path, capsys) -> None:
    path = tmp_path / "results.jsonl"
    cache = ResultCache(path)
    cache.put(ONE, {"a": 1})
    cache.put(TWO, {"a": 2})
    header, line, other = path.read_bytes().splitlines(keepends=True)
    damaged = damage(line)
    assert damaged != line
    path.write_bytes(header + damaged + other)
    again = ResultCache(path)
    assert "1 damaged line is skipped" in capsys.readouterr().err
    assert (again.get(ONE), again.get(TWO)) == (None, {"a": 2})
    # Not even the identity that the damaged line states now has the result.
    assert again.get({**ONE, "settings": {"rate": 0.2}}) is None
    again.put(TWO, {"a": 3})
    assert damaged in path.read_bytes()


def test_a_result_that_is_replaced_leaves_one_record(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    cache = ResultCache(path)
    for number in range(3):
        cache.put(ONE, {"a": number})
    assert path.read_bytes().count(b"\n") == 2
    assert ResultCache(path).get(ONE) == {"a": 2}


@pytest.mark.parametrize("content", [b"", b"my notes\n", b'{"format": "other-1"}\n', b'{"key": 1}\n', HEADER[:-5]])
def test_a_file_that_is_no_cache_is_refused_and_left_as_it_is(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_bytes(content)
    with pytest.raises(UnreadableFile, match="not a result cache"):
        ResultCache(path)
    assert path.read_bytes() == content


def test_a_cache_of_a_later_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text('{"format": "proxlearn-results-2"}\n')
    with pytest.raises(NewerFormat, match="newer version"):
        ResultCache(path)


def test_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(HEADER)
    (tmp_path / "results.jsonl").symlink_to(tmp_path / "target")
    with pytest.raises(InputError, match="link"):
        ResultCache(tmp_path / "results.jsonl")


def test_a_hard_link_of_a_backup_keeps_its_content(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    cache = ResultCache(path)
    cache.put(ONE, {"a": 1})
    os.link(path, tmp_path / "backup")
    content = path.read_bytes()
    cache.put(TWO, {"a": 2})
    assert (tmp_path / "backup").read_bytes() == content


def test_a_full_disk_leaves_the_file_and_the_cache_as_they_were(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "results.jsonl"
    cache = ResultCache(path)
    cache.put(ONE, {"a": 1})
    content = path.read_bytes()

    def write_part(handle: int, line: bytes) -> None:
        atomic.write_all(handle, line[:30])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(result_cache, "write_all", write_part)
        with pytest.raises(OSError, match="No space"):
            cache.put(TWO, {"a": 2})
    assert path.read_bytes() == content
    assert cache.get(TWO) is None
    cache.put(TWO, {"a": 2})
    assert ResultCache(path).get(TWO) == {"a": 2}
