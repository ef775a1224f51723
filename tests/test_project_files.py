"""Files about the project agree with each other: version, dependencies, checks, Python versions.

The recipes of CONTRIBUTING.md work as written: each needs its module and one line in a registry.

The installed package: a wheel with its configs that runs from any folder, and the order of its layers.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from compare_bits import train

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
    site = {package_of(line) for line in PROJECT["optional-dependencies"]["docs"]}
    assert site <= pinned
    explained = (ROOT / "docs" / "project" / "dependencies.md").read_text(encoding="utf-8").lower()
    assert {name for name in required | development | site if name not in explained} == set()


def test_the_install_page_lists_every_extra() -> None:
    page = (ROOT / "docs" / "start" / "install.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == list(PROJECT["optional-dependencies"])


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


CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
FIT = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from proxlearn.baselines.registry import Request
from proxlearn.baselines.registry import find_method, load_fit, method_settings
nearest = find_method("nearest")
X = np.random.default_rng(0).normal(size=(60, 2))
fitted = load_fit(nearest)(X, np.sign(X[:, 0]), Request("banana", 0))
print(method_settings(nearest, "light", "banana"), np.mean((fitted.probability(X) > 0.5) == (X[:, 0] > 0)))
"""


def write_module(tree: Path, path: str) -> None:
    """Write the code block that follows the first mention of the path."""
    code = re.search(rf"`{re.escape(path)}`:\n\n```python\n(.*?)```", CONTRIBUTING, re.DOTALL)
    assert code is not None
    (tree / path).write_text(code[1], encoding="utf-8")


def add_line(path: Path, before: str, line: str) -> None:
    assert line in CONTRIBUTING
    content = path.read_text(encoding="utf-8")
    assert content.count(before) == 1
    path.write_text(content.replace(before, f"{before}\n    {line},"), encoding="utf-8")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tree")
    for name in ("proxlearn", "configs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def test_a_dataset_is_added(tree: Path, tmp_path: Path) -> None:
    write_module(tree, "proxlearn/data/circles.py")
    add_line(tree / "proxlearn/data/registry.py", "LOADERS = {", '"circles": "proxlearn.data.circles"')
    similar = (tree / "configs/dataset/banana.yaml").read_text(encoding="utf-8")
    config = similar.replace("name: banana", "name: circles").replace("scaling: paper ", "scaling: standard ")
    (tree / "configs/dataset/circles.yaml").write_text(config, encoding="utf-8")
    cloud = train(tree, ["dataset=circles", "N=20", "steps=3", "compile=off"], tmp_path / "run")
    assert (cloud.exit_code, cloud.step, cloud.theta.shape) == (0, 3, (20, 4))


def test_a_compared_method_is_added(tree: Path, tmp_path: Path) -> None:
    write_module(tree, "proxlearn/baselines/nearest.py")
    line = 'Method("nearest", "nearest neighbours", "reference", "proxlearn.baselines.nearest:fit")'
    add_line(tree / "proxlearn/baselines/registry.py", "_ALL = (", line)
    done = subprocess.run([sys.executable, "-c", FIT, str(tree)], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("{'neighbours': 15}")
    assert float(done.stdout.split()[-1]) > 0.9


@pytest.mark.parametrize(
    "path", sorted(set(re.findall(r"`((?:proxlearn|tests|docs|scripts)/[\w./]*\w\.\w+)`", CONTRIBUTING)))
)
def test_every_file_that_is_named_exists(path: str) -> None:
    assert path in ("proxlearn/data/circles.py", "proxlearn/baselines/nearest.py") or (ROOT / path).is_file()


def test_every_make_target_that_is_named_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"(?:`|\n)make ([a-z-]+)", CONTRIBUTING))
    assert {"test", "coverage", "bits"} <= targets
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_every_package_folder_is_listed() -> None:
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    folders = {p.parent.relative_to(ROOT) for p in (ROOT / "proxlearn").rglob("__init__.py")}
    assert listed == {".".join(folder.parts) for folder in folders} | {"proxlearn.configs"}


def test_no_module_is_long() -> None:
    modules = [path for folder in ("proxlearn", "scripts", "tests", "docs") for path in (ROOT / folder).rglob("*.py")]
    lengths = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in modules}
    assert len(lengths) > 300
    assert {name: lines for name, lines in lengths.items() if lines > 350} == {}


LAYERS = (
    ("portability", "printable_text"),
    ("errors",),
    ("memory",),
    ("files.safe_read",),
    ("validators",),
    ("core",),
    ("losses", "neurons"),
    ("files",),
    ("terminal",),
    ("config",),
    ("distributed",),
    ("data", "training", "loggers", "jobs.records"),
    ("flow", "run"),
    ("jobs", "predict"),
    ("estimator_parameters",),
    ("estimator_base",),
    ("estimator_regressor",),
    ("baselines", "bench", "estimator"),
    ("compare",),
    ("paper.published",),
    ("views",),
    ("train_and_draw",),
    ("sweeps",),
    ("paper",),
    ("verify",),
    ("commands",),
    ("cli", "runs"),
    ("__init__", "__main__"),
)
"""Folders and modules of the package from the bottom to the top: each imports from itself and from those before it."""
LEVELS = {name: level for level, layer in enumerate(LAYERS) for name in layer}


def room_of(module: str) -> str:
    """Return the entry of LAYERS to which a module (without the leading ``proxlearn.``) belongs."""
    parts = module.split(".")
    return next((name for name in (".".join(parts[:2]), parts[0]) if name in LEVELS), parts[0])


def imports_of(source: str) -> set[str]:
    """Return the entries of LAYERS from which a module imports anywhere, including inside functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    inside = {name.partition(".")[2] for name in names if name.startswith("proxlearn.")}
    return {room_of(name) for name in inside} - {"__version__"}


def upward_imports(sources: dict[str, str]) -> list[str]:
    """Return each import from a layer that is not below; paths are relative to the package."""
    upward = []
    for path, source in sources.items():
        own = room_of(path.removesuffix(".py").replace("/", "."))
        for other in sorted(imports_of(source) - {own}):
            if LEVELS[other] >= LEVELS[own]:
                upward.append(f"{path} imports {other}")
    return upward


def package_sources() -> dict[str, str]:
    package = ROOT / "proxlearn"
    return {str(path.relative_to(package)): path.read_text(encoding="utf-8") for path in package.rglob("*.py")}


def test_imports_go_one_way_only() -> None:
    sources = package_sources()
    rooms = {room_of(path.removesuffix(".py").replace("/", ".")) for path in sources}
    assert rooms == set(LEVELS), "LAYERS lists every module"
    assert upward_imports(sources) == []


@pytest.mark.parametrize(
    "path, line",
    [
        ("core/fused/fused_step.py", "from proxlearn.files.atomic import write_json"),
        ("core/cloud.py", "from proxlearn.config import schema"),
        ("training/fit.py", "import proxlearn.run.training_loop as loop"),
        ("bench/timing.py", "def now():\n    from proxlearn.views.style import figure"),
        ("run/training_loop.py", "from proxlearn import views"),
        ("compare/cells.py", "from proxlearn.views import tables"),
        ("views/film/film.py", "from proxlearn.sweeps.sweep import SweepPlan"),
    ],
)
def test_an_import_that_goes_up_is_seen_in_every_folder(path: str, line: str) -> None:
    sources = package_sources()
    assert path in sources
    assert len(upward_imports({path: line})) == 1


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel in it, and the dependencies of this one."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    python = environment / "bin" / "python"
    (wheel,) = folder.glob("proxlearn-*.whl")
    subprocess.run([*pip, "--python", str(python), "install", "--quiet", "--no-deps", str(wheel)], check=True)
    return python


@pytest.mark.parametrize("dataset", ["wdbc", "sine"])
def test_the_wheel_trains_from_an_empty_folder(installed: Path, tmp_path: Path, dataset: str) -> None:
    # PYTHONPATH brings the dependencies without this environment's own (editable) proxlearn.
    environment = os.environ | {"PYTHONPATH": sysconfig.get_path("purelib"), "OMP_NUM_THREADS": "1"}
    where = [str(installed), "-c", "import proxlearn; print(proxlearn.__file__)"]
    package_file = subprocess.run(
        where, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert Path(package_file.strip()).is_relative_to(installed.parents[1])
    shipped = {path.name for path in (Path(package_file.strip()).parent / "views" / "report" / "assets").iterdir()}
    assert shipped == {path.name for path in (ROOT / "proxlearn" / "views" / "report" / "assets").iterdir()}
    train = [str(installed.parent / "proxlearn"), "train", f"dataset={dataset}", "beta=0.05", "steps=20", "N=40"]
    completed = subprocess.run(train, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
    assert "| test " in completed.stdout
    (run,) = (tmp_path / "outputs" / dataset).iterdir()
    assert (run / "risk.png").exists()


def test_a_bare_checkout_runs_without_installation(tmp_path: Path) -> None:
    """With -S, Python ignores the site-packages and therefore any installed proxlearn."""
    paths = [str(ROOT), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    code = f"import sys; sys.path[:0] = {paths!r}; from proxlearn.cli import main; sys.exit(main())"
    command = [sys.executable, "-S", "-c", code, "train", "dataset=sine", "N=5", "steps=1"]
    completed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
    assert "finished at step 1" in completed.stdout
