"""Pages of the site that show existing text: API pages from docstrings, and copies of Markdown files."""

from __future__ import annotations

import functools
import importlib
import re
import types
from pathlib import Path

from reference_pages import write_changed

import proxlearn

ROOT = Path(__file__).resolve().parents[1]
OUTPUTS = ROOT / "outputs"
PAPER_PAGES = tuple(f"paper/{name}" for name in ("table1", "table2", "table3", "table4", "table5", "shd", "curves"))
API_GROUPS = {
    "estimators": (
        "Estimators",
        "A classifier and a regressor with the interface of scikit-learn.",
        ("ProxLearnClassifier", "ProxLearnRegressor"),
    ),
    "recursion": (
        "The recursion",
        "Functionals, clouds and steps, without a run folder.",
        ("Risk", "Energy", "Functional", "PointCloud", "Hyper", "Info", "init", "step", "iterate"),
    ),
    "runs": (
        "Runs",
        "Training with the settings of the command line, and access to run folders.",
        ("train", "load_run", "Run", "StepEvent"),
    ),
    "losses": ("Losses", "Losses of a risk, from the module `proxlearn.losses`.", ("losses",)),
    "neurons": ("Neurons", "Neurons and activations, from the module `proxlearn.neurons`.", ("neurons",)),
    "errors": (
        "Errors",
        "Exceptions with a one-line message that ends with a remedy.",
        ("ProxlearnError", "InputError", "RunError"),
    ),
}
"""Title, sentence and names of each page of the API reference; all public names except ``__version__`` are included."""


def write(folder: Path) -> None:
    """Write the pages of the Python interface into ``folder``/reference."""
    write_changed(folder / "reference" / "python_api.md", api_page())
    for name, group in API_GROUPS.items():
        write_changed(folder / "reference" / f"api_{name}.md", api_group_page(*group))


def api_page() -> str:
    """Return the overview of the Python interface."""
    assert proxlearn.__doc__ is not None
    parts = [
        "# Python API\n\nThis page lists the public names of `proxlearn`. After `import proxlearn as pl`, they are "
        "available under `pl`, for example as `pl.Risk`. torch is imported when it is needed for the first time.\n"
    ]
    for name, (title, sentence, names) in API_GROUPS.items():
        parts.append(f"## [{title}](api_{name}.md)\n\n{sentence}\n\n{summary_table(public_objects(names))}")
    parts.append("`proxlearn.__version__` is the version of the package.\n")
    pages = "\n".join(f"api_{name}" for name in API_GROUPS)
    return "\n".join(parts) + f"\n:::{{toctree}}\n:hidden:\n\n{pages}\n:::\n"


def public_objects(names: tuple[str, ...]) -> list[str]:
    """Return the full names of public objects; a public module stands for the names in its ``__all__``."""
    full = []
    for name in names:
        value = getattr(proxlearn, name)
        members = getattr(value, "__all__", None)
        full += [f"proxlearn.{name}.{member}" for member in members] if members else [f"proxlearn.{name}"]
    return full


def summary_table(names: list[str]) -> str:
    """Return an autosummary table."""
    lines = "\n".join(f"   {name}" for name in names)
    return f"```{{eval-rst}}\n.. autosummary::\n   :nosignatures:\n\n{lines}\n```\n"


def api_group_page(title: str, sentence: str, names: tuple[str, ...]) -> str:
    """Return the page of one group of public names."""
    parts = [f"# {title}\n\n{sentence}\n"]
    full = public_objects(names)
    if full[0].count(".") == 2:
        module = full[0].rpartition(".")[0]
        parts.append(f"```{{eval-rst}}\n.. automodule:: {module}\n```\n")
        # The automodule directive makes the module current, and a table names the members of the current module.
        parts.append(summary_table([name.removeprefix(f"{module}.") for name in full]))
    else:
        parts.append(summary_table(full))
    for name in full:
        parts.append(f"## {name.rpartition('.')[2]}\n\n```{{eval-rst}}\n{directive(name)}\n```\n")
    return "\n".join(parts)


def directive(name: str) -> str:
    """Return the directive that documents one object, with the public methods and properties that proxlearn defines."""
    module, _, member = name.rpartition(".")
    value = getattr(importlib.import_module(module), member)
    if not isinstance(value, type):
        return f".. autofunction:: {name}\n" if callable(value) else f".. autodata:: {name}\n   :no-value:\n"
    # Fitted attributes are a section of the docstring of an estimator.
    members = ", ".join(name for name in public_members(value) if not name.endswith("_"))
    return f".. autoclass:: {name}\n" + (f"   :members: {members}\n" if members else "")


def public_members(cls: type) -> list[str]:
    """Return the names of the public class variables, methods and properties of a class.

    Members that the class inherits from other packages are left out.
    """
    kinds = (types.FunctionType, property, classmethod, staticmethod, functools.cached_property)
    owners = [owner for owner in cls.__mro__ if owner.__module__.startswith("proxlearn")]
    variables = (
        name
        for owner in owners
        for name, annotation in vars(owner).get("__annotations__", {}).items()
        if str(annotation).startswith("ClassVar")
    )
    names = (name for owner in owners for name, value in vars(owner).items() if isinstance(value, kinds))
    return list(dict.fromkeys(name for name in (*variables, *names) if not name.startswith("_")))


WEIGHTS_TITLES = {
    "weights": "Proximal, uniform and Fisher-Rao weights on seven datasets",
    "verify/experiment": "A designed experiment",
}
"""Section titles that are used instead of the titles of the files in outputs/."""
RESULT_PAGES = {
    **dict.fromkeys(PAPER_PAGES, "paper_tables"),
    "weights": "weights",
    "verify/experiment": "weights",
    "paper/health": "weights",
    "tuned": "tuned",
    "losses": "tuned",
}
"""For each file in outputs/ that is shown as a section, the page in docs/results/ with this section."""
PAGES = {
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "docs/reproduction.md": "results/reproduction.md",
    "outputs/estimators.md": "results/estimators.md",
    "outputs/verify/verify.md": "results/verify.md",
    "outputs/compare/matched-light/compare.md": "results/comparison.md",
    "outputs/compare/paper-paper/compare.md": "results/published_samplers.md",
}
"""For each file of the repository that is shown as a whole page, the address of this page."""


def title_of(path: Path) -> str:
    """Return the title of a Markdown file."""
    return path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def section_address(name: str) -> str:
    """Return the address, relative to docs/, of the section that shows a file in outputs/."""
    title = WEIGHTS_TITLES.get(name) or title_of(OUTPUTS / f"{name}.md")
    anchor = re.sub(r"[^\w\- ]", "", title.lower().replace(" ", "-"))
    return f"results/{RESULT_PAGES[name]}.md#{anchor}"


def page_address(path: Path) -> str | None:
    """Return the address, relative to docs/, of the page or section that shows a file, or None if no page shows it."""
    if not path.is_relative_to(ROOT):
        return None
    name = path.relative_to(ROOT).as_posix()
    if name in PAGES:
        return PAGES[name]
    if name.startswith("outputs/") and name.removeprefix("outputs/").removesuffix(".md") in RESULT_PAGES:
        return section_address(name.removeprefix("outputs/").removesuffix(".md"))
    return name.removeprefix("docs/") if name.startswith("docs/") and path.suffix == ".md" else None


@functools.cache
def mentioned_files() -> dict[str, str]:
    """Return the address of a page for each name by which texts mention its file, such as `health.md`."""
    files = [*PAGES, *(f"outputs/{name}.md" for name in RESULT_PAGES), "docs/ranks.md", "docs/project/dependencies.md"]
    addresses = {name: address for name in files if (address := page_address(ROOT / name)) is not None}
    # Earlier files take precedence: compare.md is the matched comparison.
    short = {name.rpartition("/")[2]: address for name, address in reversed(addresses.items()) if "outputs/" in name}
    return short | addresses


LINK_OR_FILE = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)|`([^`]+)`|(?<![\w/.-])((?:[\w-]+/)*[\w-]+\.md)\b")
"""A link or a picture, code, or the name of a Markdown file."""


def repeat(path: Path, offset: int = 1, title: str | None = None) -> str:
    """Return a Markdown file as a section, with headings ``offset`` levels lower and paths of pictures from docs/*/.

    A link to another file of the repository becomes a link to the page of that file, or plain text if the file has no
    page. The name of a file that has a page becomes a link.
    """
    text = path.read_text(encoding="utf-8")
    if title is not None:
        text = re.sub(r"\A# .*", f"# {title}", text)

    def link(match: re.Match[str]) -> str:
        mark, words, target, code, name = match.groups()
        if target is None:
            address = mentioned_files().get(code or name)
            return match[0] if address is None else f"[{match[0]}](../{address})"
        file = (path.parent / target).resolve()
        if mark:
            return f"![{words}](../../{file.relative_to(ROOT)})"
        address = page_address(file)
        if address is not None:
            return f"[{words}](../{address})"
        return words if not target.startswith(("http", "#")) else match[0]

    # Code blocks stay as they are.
    parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    for number in range(0, len(parts), 2):
        part = re.sub(r"^(#+ )", "#" * offset + r"\1", parts[number], flags=re.MULTILINE)
        parts[number] = LINK_OR_FILE.sub(link, part)
    return "".join(parts).rstrip() + "\n"
