"""API pages of the site: every public name, in groups, documented by its docstring."""

from __future__ import annotations

import functools
import importlib
import types
from pathlib import Path

from reference_pages import write_changed

import proxlearn

API_GROUPS = {
    "estimators": ("Estimators", "Fit and predict, as in scikit-learn.", ("ProxLearnClassifier", "ProxLearnRegressor")),
    "recursion": (
        "The recursion",
        "Functionals, clouds and steps, without files.",
        ("Risk", "Energy", "Functional", "PointCloud", "Hyper", "Info", "init", "step", "iterate"),
    ),
    "runs": (
        "Runs",
        "Train as on the command line, and open run folders.",
        ("train", "load_run", "Run", "StepEvent"),
    ),
    "losses": ("Losses", "The module `proxlearn.losses`.", ("losses",)),
    "neurons": ("Neurons", "The module `proxlearn.neurons`.", ("neurons",)),
    "errors": (
        "Errors",
        "Exceptions with a one-line message and a remedy.",
        ("ProxlearnError", "InputError", "RunError"),
    ),
}
"""Pages of the API reference: title, sentence, names; with ``__version__`` they are all public names."""


def write(folder: Path) -> None:
    """Write the pages of the Python interface below ``folder``."""
    write_changed(folder / "reference" / "python_api.md", api_page())
    for name, group in API_GROUPS.items():
        write_changed(folder / "reference" / f"api_{name}.md", api_group_page(*group))


def api_page() -> str:
    """Return the overview of the Python interface."""
    assert proxlearn.__doc__ is not None
    parts = ["# Python API\n\n`import proxlearn as pl` makes these names available. torch is imported on first use.\n"]
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
    """Return the names of the public class variables, methods and properties of a class, without inherited ones of
    other packages.
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
