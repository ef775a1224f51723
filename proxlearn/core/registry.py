"""Registries of named parts: those of proxlearn, and those that installed packages add by entry points.

A config names a part by a word. The word selects an object of a registry, never code by its path: what can run was
installed by the user, and a config that was sent by someone else can only choose among it.

Nothing is imported from other packages before one of their parts is asked for by name, and the list of entry points is
not read while every name is one of proxlearn's own.
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
LONGEST_ERROR = 300
"""Maximum number of characters of another package's error in a message."""

_registered_names: dict[str, set[str]] = {}
"""Names that ``Registry.register`` has added, per entry-point group."""
_accept_any_name: ContextVar[bool] = ContextVar("accept_any_name", default=False)


class UnknownPart(InputError):
    """A config or a file names a part that neither proxlearn nor an installed package has."""


def registered(options: Any, group: str) -> Check:
    """Return a validator of the strings of a ``Literal``, of entry points of a group, and of registered parts."""
    names = get_args(options)

    def check(name: str, value: Any) -> str:
        if value in names:
            return str(value)
        if _accept_any_name.get():
            any_word: str = word(names[0])(name, value)
            return any_word
        added = [*plugin_names(group), *sorted(_registered_names.get(group, ()))]
        if value not in added:
            remedy = f"choose {name}={'|'.join([*names, *added])}, or {INSTALL_PACKAGE}"
            raise UnknownPart(f"{name} cannot be {value!r:.100}", remedy)
        return str(value)

    return check


@contextlib.contextmanager
def accept_any_name() -> Iterator[None]:
    """Let ``registered`` accept every word: a finished run is shown without the package that it was trained with."""
    token = _accept_any_name.set(True)
    try:
        yield
    finally:
        _accept_any_name.reset(token)


class Registry(Generic[T]):
    """Parts by name. Entry points are imported when their name is asked for, not before.

    Parameters
    ----------
    kind : str
        What the parts are, in the words of an error message: ``"loss"``, ``"neuron"``.
    group : str
        The entry-point group that other packages register parts in, such as ``proxlearn.losses``.
    parts : Mapping
        proxlearn's own parts. An entry point of the same name does not replace one of them.
    expected : str
        What an entry point must be, in the words of an error message.
    accepts : Callable
        Whether the object of an entry point is what is expected.
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
        """Names of proxlearn's own parts, without those of entry points and of ``register``."""

    def names(self) -> list[str]:
        """Return every name: proxlearn's own names first, in their order, then those of entry points."""
        return [*self._parts, *(name for name in plugin_names(self.group) if name not in self._parts)]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __contains__(self, name: object) -> bool:
        return name in self._parts or name in plugin_names(self.group)

    def register(self, name: str, part: T) -> None:
        """Add a part in this process, for example in a script or a test."""
        name = word(next(iter(self._parts), "mine"))(f"the name of a {self.kind}", name)
        if not self.accepts(part):
            raise InputError(f"the {self.kind} `{name}` is {part!r:.100}", f"give {self.expected}")
        if name in self:
            raise InputError(f"there is a {self.kind} called `{name}` already", "choose another name")
        self._parts[name] = part
        _registered_names.setdefault(self.group, set()).add(name)

    def unregister(self, name: str) -> None:
        """Remove a part that was added by ``register``."""
        registered_names = _registered_names.get(self.group, set())
        if name not in registered_names:
            raise InputError(f"no {self.kind} `{name}` was registered in this process", "name one that was")
        del self._parts[name]
        registered_names.remove(name)

    def __getitem__(self, name: str) -> T:
        if name in self._parts:
            return self._parts[name]
        if name not in plugin_names(self.group):
            remedy = did_you_mean(name, self.names())
            remedy += "" if "did you mean" in remedy else f", or {INSTALL_PACKAGE}"
            raise UnknownPart(f"unknown {self.kind} `{name}`", remedy)
        part: T = load_plugin(self.kind, self.group, name)
        if not self.accepts(part):
            raise plugin_error(self.kind, self.group, name, f"is not {self.expected}")
        return part

    def make(self, name: str, cls: type[S], *arguments: Any) -> S:
        """Return the part of a name if it is an object of ``cls``, otherwise what it returns for the arguments."""
        part: Any = self[name]
        if isinstance(part, cls):
            return part
        if name in self._parts:
            own: S = part(*arguments)
            if not isinstance(own, cls):
                problem = f"the {self.kind} `{name}` is a function that returned {type(own).__name__}"
                raise InputError(problem, f"register {self.expected}")
            return own
        try:
            made = part(*arguments)
        except ProxlearnError:
            raise
        except Exception as error:
            problem = f"cannot be made ({describe_error(error)})"
            raise plugin_error(self.kind, self.group, name, problem) from error
        if not isinstance(made, cls):
            problem = f"is a function that returns {type(made).__name__} and not {cls.__name__}"
            raise plugin_error(self.kind, self.group, name, problem)
        return made


def plugin_names(group: str) -> list[str]:
    """Return the names of the entry points of a group, sorted, each once; no package is imported."""
    return sorted({point.name for point in find_entry_points(group)})


@cache
def load_plugin(kind: str, group: str, name: str) -> Any:
    """Import the object of an entry point, once; a failure is an InputError that names the package."""
    points = [point for point in find_entry_points(group) if point.name == name]
    if len(points) > 1:
        packages = " and ".join(sorted(_package(point) for point in points))
        raise InputError(f"the packages {packages} both have a {kind} `{name}`", "remove one of the packages")
    try:
        return points[0].load()
    except (Exception, SystemExit) as error:
        # Another package's import can fail in any way; the user needs to know which package it is.
        problem = f"cannot be imported ({describe_error(error)})"
        raise plugin_error(kind, group, name, problem, "reinstall") from error


def plugin_error(kind: str, group: str, name: str, problem: str, remedy: str = "upgrade") -> InputError:
    """Return the error for a part of another package that cannot be used."""
    package = next(_package(point) for point in find_entry_points(group) if point.name == name)
    return InputError(f"the {kind} `{name}` of the package {package} {problem}", f"{remedy} or remove {package}")


def describe_error(error: BaseException) -> str:
    """Return another package's error in one line of limited length."""
    text = " ".join(str(error).split())
    text = text if len(text) <= LONGEST_ERROR else text[:LONGEST_ERROR] + " ..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value


@cache
def find_entry_points(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group; cached, because the metadata of every installed package is read."""
    # The import takes longer than reading the metadata, and most commands need neither.
    from importlib.metadata import entry_points

    return tuple(entry_points(group=group))
