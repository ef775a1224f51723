"""Files about the project agree with each other: version, dependencies, checks, Python versions."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxlearn import __version__

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8"))
HOOKS = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def package_of(requirement: str) -> str:
    """Return the normalised name of a requirement's package."""
    name = re.match(r"[\w.-]+", requirement)
    assert name is not None
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def test_every_file_names_the_same_version() -> None:
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == __version__ == CITATION["version"]
    assert headings == sorted(headings, key=lambda text: [int(part) for part in text.split(".")], reverse=True)


def test_the_changelog_tells_a_user_what_to_do() -> None:
    newest = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")[1]
    parts = re.findall(r"^### (.*)", newest, re.MULTILINE)
    assert parts == ["What is new", "What changed", "What was fixed", "Upgrading from 0.1.0"]


def test_the_papers_authors_are_cited_and_no_other_person() -> None:
    cited = [author["family-names"] for author in CITATION["preferred-citation"]["authors"]]
    assert cited == ["Teter", "Nodozi", "Halder"]
    assert CITATION["authors"] == PROJECT["authors"] == [{"name": "proxlearn developers"}]


def test_every_dependency_is_pinned_and_explained() -> None:
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {package_of(line) for line in pins if not line.startswith("#")}
    assert pins[1:] == sorted(pins[1:], key=str.lower)
    required = {package_of(line) for line in PROJECT["dependencies"]}
    development = {package_of(line) for line in PROJECT["optional-dependencies"]["dev"]} - {"proxlearn"}
    assert required | development <= pinned
    readme = (ROOT / "README.md").read_text(encoding="utf-8").lower().partition("## dependencies")[2]
    assert {name for name in required | development if name not in readme} == set()


def test_the_workflow_tests_the_versions_that_the_package_names() -> None:
    named = {text.rpartition(" ")[2] for text in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", text)}
    assert set(WORKFLOW["jobs"]["linux"]["strategy"]["matrix"]["python"]) == named
    assert min(named) == PROJECT["requires-python"].removeprefix(">=")
    assert {"run": "make test PYTHON=python"} in WORKFLOW["jobs"]["linux"]["steps"]
    assert all(job["steps"][0]["uses"].startswith("actions/checkout@") for job in WORKFLOW["jobs"].values())


def paths_of(job: dict[str, Any]) -> list[str]:
    return [word for step in job["steps"] for word in step.get("run", "").split() if word.startswith("tests/")]


@pytest.mark.parametrize("name", ["macos", "windows"])
def test_the_tests_that_the_workflow_names_exist(name: str) -> None:
    paths = paths_of(WORKFLOW["jobs"][name])
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_hooks_are_checks_of_the_test_command_and_fetch_nothing() -> None:
    assert [repository["repo"] for repository in HOOKS] == ["local"]
    (_, _, commands) = MAKEFILE.partition("\ntest: ")
    for hook in HOOKS[0]["hooks"]:
        assert hook["language"] == "system"
        program, *words = hook["entry"].split()
        assert f"$(BIN)/{' '.join([Path(program).name, *words]).removesuffix(' --force-exclude')}" in commands
