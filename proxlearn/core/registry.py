"""Registries of named losses, neurons, datasets, weight updates and loggers, which installed packages can extend.

A config refers to such a component by its name. A name selects an object from a registry and is never an import path,
so a config from an untrusted source can select only components that the user has installed.

Packages add components through entry points. A package is imported only when one of its components is requested by
name, and the list of entry points is read only if a requested name is not one of proxlearn's own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args

from proxlearn.errors import InputError, ProxlearnError, did_you_mean
from proxlearn.validators import Check, word

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")
S = TypeVar("S")

__all__ = ["Registry", "UnknownPart", "registered"]

NEURON_GROUP = "proxlearn.neurons"
LOSS_GROUP = "proxlearn.losses"
DATASET_GROUP = "proxlearn.datasets"
WEIGHTS_GROUP = "proxlearn.weights"
LOGGER_GROUP = "proxlearn.loggers"

INSTALL_PACKAGE = "install the package that adds it"
REGISTER_FUNCTIONS = {NEURON_GROUP: "proxlearn.neurons.register", LOSS_GROUP: "proxlearn.losses.register"}
"""Functions that add a component to the registry of a Python process, for groups that have such a function."""
LONGEST_ERROR = 300
"""Maximum length of another package's error in a message, in characters."""

_registered_names: dict[str, set[str]] = {}
"""Names that ``Registry.register`` has added, per entry-point group."""
_accept_any_name: ContextVar[bool] = ContextVar("accept_any_name", default=False)


class UnknownPart(InputError):
    """Raised if a config or a file names a component that neither proxlearn nor an installed package provides."""

    how_to_add = INSTALL_PACKAGE


def how_to_add(group: str, other: str = "") -> str:
    """Return the remedies for an unknown name: ``other``, if given, and the ways to add a component to a group."""
    ways = [other] if other else []
    ways.append(INSTALL_PACKAGE)
    if group in REGISTER_FUNCTIONS:
        ways.append(f"call {REGISTER_FUNCTIONS[group]} in Python first")
    return f"{', '.join(ways[:-1])}, or {ways[-1]}" if len(ways) > 1 else ways[0]


def registered(options: Any, group: str) -> Check:
    """Return a validator that accepts the strings of a ``Literal`` and the names of components added to a group."""
    names = get_args(options)

    def check(name: str, value: Any) -> str:
        if value in names:
            return str(value)
        if _accept_any_name.get():
            any_word: str = word(names[0])(name, value)
            return any_word
        added = [*plugin_names(group), *sorted(_registered_names.get(group, ()))]
        if value not in added:
            remedy = how_to_add(group, f"choose {name}={'|'.join([*names, *added])}")
            error = UnknownPart(f"{name} cannot be {value!r:.100}", remedy)
            error.how_to_add = how_to_add(group)
            raise error
        return str(value)

    return check


@contextlib.contextmanager
def accept_any_name() -> Iterator[None]:
    """Accept any name in the validators of ``registered``, so that a run can be shown even if a package is missing."""
    token = _accept_any_name.set(True)
    try:
        yield
    finally:
        _accept_any_name.reset(token)


class Registry(Generic[T]):
    """A registry of components by name; an entry point is imported when its name is first requested.

    Parameters
    ----------
    kind : str
        Noun for one component in error messages, such as ``"loss"`` or ``"neuron"``.
    group : str
        Entry-point group through which other packages add components, such as ``proxlearn.losses``.
    parts : Mapping
        proxlearn's own components. An entry point with the name of such a component does not replace it.
    expected : str
        Description of a valid entry point, for error messages.
    accepts : Callable
        Function that returns whether the object that an entry point refers to is valid.
    """

    def __init__(
        self,
        kind: str,
        group: str,
        parts: Mapping[str, T],
        expected: str = "a function",
        accepts: Callable[[Any], bool] = callable,
    ) -> None:
        self.kind, self.group = kind, group
        self.expected, self.accepts = expected, accepts
        self._parts = dict(parts)
        self.own_names = tuple(parts)
        """Names of proxlearn's own components, without those of entry points and of ``register``."""

    def names(self) -> list[str]:
        """Return all names: those of proxlearn and of ``register``, in their order, then those of entry points."""
        return [*self._parts, *(name for name in plugin_names(self.group) if name not in self._parts)]

    def names_where(self, condition: Callable[[str], bool]) -> list[str]:
        """Return the names that fulfil a condition, without those whose package cannot be imported."""
        names = []
        for name in self.names():
            with contextlib.suppress(ProxlearnError):
                names += [name] if condition(name) else []
        return names

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __contains__(self, name: object) -> bool:
        return name in self._parts or name in plugin_names(self.group)

    def register(self, name: str, part: T) -> None:
        """Add a component to the registry of this process, for example in a script or a test."""
        try:
            name = word("mine")(f"the name of a {self.kind}", name)
        except InputError as error:
            raise InputError(error.problem, f"choose a name such as my_{self.kind.replace(' ', '_')}") from error
        if not self.accepts(part):
            raise InputError(f"the {self.kind} `{name}` cannot be {part!r:.100}", f"give {self.expected}")
        if name in self:
            remedy = "choose another name"
            if name in _registered_names.get(self.group, ()) and self.group in REGISTER_FUNCTIONS:
                # A cell of a notebook that registers a part fails if it is run again.
                unregister = REGISTER_FUNCTIONS[self.group].replace("register", "unregister")
                remedy = f"call {unregister}({name!r}) first to replace it, or {remedy}"
            raise InputError(f"a {self.kind} called `{name}` already exists", remedy)
        self._parts[name] = part
        _registered_names.setdefault(self.group, set()).add(name)

    def unregister(self, name: str) -> None:
        """Remove a component that was added by ``register``."""
        registered_names = _registered_names.get(self.group, set())
        if name not in registered_names:
            raise InputError(
                f"the {self.kind} `{name}` was not registered in this process", "give a name that `register` added"
            )
        del self._parts[name]
        registered_names.remove(name)

    def __getitem__(self, name: str) -> T:
        if name in self._parts:
            return self._parts[name]
        if name not in plugin_names(self.group):
            remedy = did_you_mean(name, self.names())
            remedy = remedy if "did you mean" in remedy else how_to_add(self.group, remedy)
            raise UnknownPart(f"unknown {self.kind} `{name}`", remedy)
        part: T = load_plugin(self.kind, self.group, name)
        if not self.accepts(part):
            raise plugin_error(self.kind, self.group, name, f"is invalid: it must be {self.expected}")
        return part

    def make(self, name: str, cls: type[S], *arguments: Any) -> S:
        """Return the component called ``name``, or its result for ``arguments`` if it is a function or a class."""
        part: Any = self[name]
        if isinstance(part, cls):
            return part
        if name in self._parts:
            own: S = part(*arguments)
            if not isinstance(own, cls):
                problem = f"the {self.kind} `{name}` is a function that returned an object of type {type(own).__name__}"
                raise InputError(problem, f"register {self.expected}")
            return own
        try:
            created = part(*arguments)
        except ProxlearnError:
            raise
        except Exception as error:
            problem = f"cannot be created ({describe_error(error)})"
            raise plugin_error(self.kind, self.group, name, problem) from error
        if not isinstance(created, cls):
            problem = f"returns an object of type {type(created).__name__} instead of {cls.__name__}"
            raise plugin_error(self.kind, self.group, name, problem)
        return created


def plugin_names(group: str) -> list[str]:
    """Return the names of the entry points of a group, sorted and without duplicates; no package is imported."""
    return sorted({point.name for point in find_entry_points(group)})


@cache
def load_plugin(kind: str, group: str, name: str) -> Any:
    """Import and return the object of an entry point; if this fails, raise an InputError that names the package."""
    points = [point for point in find_entry_points(group) if point.name == name]
    if len(points) > 1:
        packages = " and ".join(sorted(_package(point) for point in points))
        raise InputError(f"the packages {packages} each add a {kind} called `{name}`", "keep only one of them")
    try:
        return points[0].load()
    except (Exception, SystemExit) as error:
        # Importing another package can raise any exception; the message tells the user which package failed.
        problem = f"cannot be imported ({describe_error(error)})"
        raise plugin_error(kind, group, name, problem, "reinstall") from error


def plugin_error(kind: str, group: str, name: str, problem: str, remedy: str = "upgrade") -> InputError:
    """Return the error for an unusable component of another package."""
    package = next(_package(point) for point in find_entry_points(group) if point.name == name)
    return InputError(f"the {kind} `{name}` of the package {package} {problem}", f"{remedy} or remove {package}")


def describe_error(error: BaseException) -> str:
    """Describe an exception of another package in one line of limited length."""
    text = " ".join(str(error).split())
    text = text if len(text) <= LONGEST_ERROR else text[:LONGEST_ERROR] + " ..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value


@cache
def find_entry_points(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group; they are cached, because the search reads the metadata of all packages."""
    # Importing importlib.metadata takes longer than reading the metadata, and most commands need neither.
    from importlib.metadata import entry_points

    return tuple(entry_points(group=group))
