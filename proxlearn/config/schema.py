"""The schema of a run's config: frozen dataclasses, which ``build`` creates from validated values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from proxlearn.config.key_suggestions import suggest_key
from proxlearn.core import options
from proxlearn.core.hyper import NOISE_SCALE, Hyperparameters
from proxlearn.core.registry import LOGGER_GROUP, LOSS_GROUP, NEURON_GROUP, registered
from proxlearn.errors import InputError
from proxlearn.validators import (
    Check,
    choice,
    flag,
    integer,
    intervals,
    label_or_labels,
    labels,
    optional,
    path,
    real,
    strengths,
    text,
    word,
)

Device = Literal["cpu", "cuda", "auto"]
Dtype = Literal["float32", "float64"]
Split = Literal["file_order", "shuffled"]
Scaling = Literal["none", "standard", "minmax", "max", "paper"]
TargetScaling = Literal["none", "standard"]
Encode = Literal["onehot"]
Missing = Literal["median", "drop", "indicator"]
Decimal = Literal["comma", "point"]
BadLines = Literal["drop"]
Solver = Literal["closed_form", "literal"]
Logger = Literal["csv", "tensorboard", "mlflow", "wandb"]
"""proxlearn's own loggers; installed packages add others through entry points of the group ``proxlearn.loggers``."""
Compile = Literal["auto", "on", "off"]
Engine = Literal["fused", "eager", "literal", "sharded"]
T = TypeVar("T")
THREADS = optional(integer(at_least=1, below=4097, example=1))


def setting(check: Check) -> Any:
    """Return a dataclass field with a validator and without a default, because defaults are only in the YAML files."""
    return field(metadata={"check": check})


def section(cls: type) -> Any:
    """Return a dataclass field whose value is itself a validated dataclass."""
    return field(metadata={"check": lambda name, value: build(cls, value, f"{name}.")})


@dataclass(frozen=True)
class DatasetConfig:
    """The data, the split and scaling of the data, and the box from which the initial cloud is drawn."""

    name: str = setting(word("wdbc"))
    path: str | None = setting(optional(path))
    target: str | tuple[str, ...] | None = setting(optional(label_or_labels))
    task: options.Task | None = setting(optional(choice(options.Task)))
    neuron: str | None = setting(optional(registered(options.Neuron, NEURON_GROUP)))
    split: Split = setting(choice(Split))
    train_fraction: float = setting(real(above=0, below=1, example=0.7))
    scaling: Scaling = setting(choice(Scaling))
    target_scaling: TargetScaling = setting(choice(TargetScaling))
    noise_scale: float = setting(NOISE_SCALE)
    initial: Mapping[str, tuple[float, float]] = setting(intervals)
    points: int | None = setting(optional(integer(at_least=2, below=10**8, example=100)))
    encode: Encode | None = setting(optional(choice(Encode)))
    missing: Missing | None = setting(optional(choice(Missing)))
    drop: tuple[str, ...] | None = setting(optional(labels))
    missing_values: tuple[str, ...] | None = setting(optional(labels))
    decimal: Decimal | None = setting(optional(choice(Decimal)))
    header: bool | None = setting(optional(flag))
    skip_lines: int | None = setting(optional(integer(at_least=0, below=10**6, example=1)))
    bad_lines: BadLines | None = setting(optional(choice(BadLines)))


@dataclass(frozen=True)
class DeviceConfig:
    """The device and the precision; after the first non-finite value, ``fallback_dtype`` replaces ``dtype``."""

    device: Device = setting(choice(Device))
    dtype: Dtype = setting(choice(Dtype))
    fallback_dtype: Dtype | None = setting(optional(choice(Dtype)))


def logger_names(name: str, value: Any) -> tuple[str, ...]:
    """Validate a list of logger names, and return it as a tuple."""
    check = registered(Logger, LOGGER_GROUP)
    several = isinstance(value, Sequence) and not isinstance(value, str) and len(value) > 0
    return tuple(check(name, item) for item in (value if several else [value]))


@dataclass(frozen=True)
class LoggerConfig:
    """The loggers to which the metrics are written in addition to metrics.csv."""

    name: str = setting(registered(Logger, LOGGER_GROUP))
    uri: str | None = setting(optional(text))
    """The store of MLflow, of wandb or of a package's logger: a folder, or the address of a server."""
    also: tuple[str, ...] | None = setting(optional(logger_names))
    """Further loggers, such as tensorboard in ``logger=[mlflow,tensorboard]``; they use their default stores."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all loggers besides metrics.csv."""
        return tuple(name for name in dict.fromkeys((self.name, *(self.also or ()))) if name != "csv")

    def __post_init__(self) -> None:
        if self.name == "mlflow" and self.uri is None:
            raise InputError("logger=mlflow needs logger.uri", "try logger.uri=outputs/mlruns")


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Hyperparameters[float | None]):
    """Every setting of ``proxlearn train``: the hyperparameters (fields of core/hyper.py) and the settings of the run.

    ``selected`` lists the settings that are None and whose values the selection chooses.
    """

    dataset: DatasetConfig = section(DatasetConfig)
    device: DeviceConfig = section(DeviceConfig)
    logger: LoggerConfig = section(LoggerConfig)
    recipe: str = setting(word("paper"))
    N: int = setting(integer(at_least=1, example=1000))
    steps: int | None = setting(optional(integer(at_least=0, example=1000)))
    seed: int = setting(integer(at_least=0, example=0))
    split_seed: int = setting(integer(at_least=0, below=2**32, example=0))
    threads: int | None = setting(THREADS)
    log_every: int | None = setting(optional(integer(at_least=1, example=100)))
    checkpoint_every: int = setting(integer(at_least=1, example=10000))
    keep_checkpoints: int = setting(integer(at_least=1, example=3))
    films: bool = setting(flag)
    overwrite: bool = setting(flag)
    init_from: str | None = setting(optional(path))
    init_sha256: str | None = setting(optional(word("null")))
    """Checksum of the initial cloud if ``init_from`` is set; later checkpoints in that folder are not used."""
    solver: Solver = setting(choice(Solver))
    compile: Compile = setting(choice(Compile))
    loss: str | None = setting(optional(registered(options.Loss, LOSS_GROUP)))
    """The name of the loss; None selects the recommended loss of the task."""
    activation: options.Activation = setting(choice(options.Activation))
    confinement: float | Mapping[str, float] | None = setting(optional(strengths))
    """The lambda of R(theta) = (lambda / 2) |theta|^2, for all coordinates or per block of theta. If it is None, the
    selection chooses the value; without a selection, the value is 0.
    """
    rho0: options.Rho0 = setting(choice(options.Rho0))
    init: options.Init = setting(choice(options.Init))
    init_scale: float | None = setting(optional(real(above=0, example=1.0)))
    validation_fraction: float | None = setting(optional(real(above=0, below=1, example=0.25)))
    """Share of the training rows that is held out; metrics on these rows help to choose settings."""
    selection_rows: int | None = setting(optional(integer(at_least=8, example=20000)))
    """Maximum number of training rows that the selection uses; None means all rows."""
    metric_rows: int | None = setting(optional(integer(at_least=1, example=20000)))
    """Maximum number of rows per part of the data for the metrics of logged steps; None means all rows.

    The final scores use all rows.
    """

    def __post_init__(self) -> None:
        check_readings(vars(self))
        for key in self.selected:
            if self.init != "normal":
                expected = "a whole number >= 0" if key == "steps" else "a finite number > 0"
                selection = "use init=normal" if self.recipe == "tuned" else "use recipe=tuned"
                remedy = f"set {key}=..., or {selection}, which selects {key}"
                raise InputError(f"{key} must be {expected}, got null", remedy)

    @property
    def selected(self) -> tuple[str, ...]:
        """The keys whose values the selection chooses."""
        keys = ("beta", "h", "epsilon", "steps", *(("init_scale",) if self.init == "normal" else ()))
        open_keys = tuple(key for key in keys if getattr(self, key) is None)
        # A confinement or a horizon alone is not selected: if all other values are given, both get fixed defaults. The
        # key ``steps`` is not considered, so that a run that is extended keeps its confinement.
        if not set(open_keys) - {"steps"}:
            return open_keys
        return (*open_keys, *(key for key in ("confinement", "horizon") if getattr(self, key) is None))


def check_readings(values: Mapping[str, Any]) -> None:
    """Raise InputError if a setting that follows the paper is combined with a setting that it does not support.

    The settings that follow the paper are drift=paper, prox_potential=paper and solver=literal. ``values`` contains the
    settings of a config or the parameters of an estimator, by name; the loss is a name or None.
    """
    for key in ("drift", "prox_potential"):
        if values[key] == "paper" and values["loss"] not in (None, "quadratic"):
            problem = f"{key}=paper is defined for the quadratic loss only, not for loss={values['loss']}"
            raise InputError(problem, f"leave out {key}=paper, or use loss=quadratic")
    if values["solver"] != "literal":
        return
    if values["confinement"]:
        raise InputError("solver=literal does not support confinement", "leave out confinement=... or solver=literal")
    for key in ("drift", "orientation", "prox_potential", "tolerance"):
        if values[key] != "paper":
            raise InputError(f"solver=literal supports only {key}=paper", f"set {key}=paper")
    if values["weights"] != "proximal":
        raise InputError("solver=literal supports only weights=proximal", "leave out weights=... or solver=literal")


KEY_ORDER = (
    *("dataset", "device", "logger", "recipe", "beta", "h", "epsilon", "epsilon_quantile", "N", "delta", "L", "steps"),
    *("seed", "split_seed", "threads", "log_every", "checkpoint_every", "keep_checkpoints", "films", "overwrite"),
    *("init_from", "init_sha256", "solver", "compile", "drift", "kernel", "orientation", "prox_potential", "tolerance"),
    *("rho0", "init", "init_scale", "weights", "resample", "ess_threshold", "h_schedule", "beta_schedule", "horizon"),
    *("batch_size", "loss", "activation", "confinement", "validation_fraction"),
)
"""The first keys in config.yaml, in the order of all versions so far; the other keys follow."""


def setting_check(setting: dataclasses.Field[Any]) -> Check:
    """Return the validator of a config field; null is accepted if the selection can choose the value."""
    check: Check = setting.metadata["check"]
    return optional(check) if setting.metadata.get("selectable") else check


def config_values(config: TrainConfig) -> dict[str, Any]:
    """Return a config as nested dictionaries, in the order of config.yaml."""
    values = dataclasses.asdict(config)
    return {key: values[key] for key in dict.fromkeys((*KEY_ORDER, *values)) if key in values}


ADDED_KEYS = {
    "films": True,
    "resample": "none",
    "ess_threshold": 0.5,
    "epsilon_quantile": None,
    "init": "box",
    "init_scale": None,
    "h_schedule": "constant",
    "beta_schedule": "constant",
    "horizon": 1000,
    "batch_size": None,
    "loss": "quadratic",
    "activation": "tanh",
    "confinement": 0.0,
    "validation_fraction": None,
    "selection_rows": None,
    "metric_rows": None,
}
"""Keys that the config.yaml of an earlier version may lack, with values that do not change the results of its run."""

ADDED_DATASET_KEYS: dict[str, Any] = dict.fromkeys(
    ("encode", "missing", "drop", "missing_values", "decimal", "header", "skip_lines", "bad_lines")
)
"""Keys of the group ``dataset`` that the config.yaml of an earlier version may lack, with the value None."""

DEFAULTS_OF_OLD_CONFIGS: dict[type, dict[str, Any]] = {
    TrainConfig: ADDED_KEYS,
    DatasetConfig: ADDED_DATASET_KEYS,
    LoggerConfig: {"uri": None, "also": None},
}
"""Defaults for keys that an old config.yaml may lack, by class."""

KEYS_OF_OLD_CONFIGS: dict[type, frozenset[str]] = {DeviceConfig: frozenset({"threads"})}
"""Keys that are ignored in an old config.yaml, by class; device.threads is now the top-level key `threads`."""

SECTIONS: dict[str, Any] = {"dataset": DatasetConfig, "device": DeviceConfig, "logger": LoggerConfig}
ALL_KEYS = (
    *(key for key in TrainConfig.__dataclass_fields__ if key != "init_sha256"),
    *(f"{name}.{key}" for name, cls in SECTIONS.items() for key in cls.__dataclass_fields__),
    *("fail_fast", "experiment", "hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir", "hydra/launcher"),
)
"""The keys that can be set on the command line."""


def build(cls: type[T], mapping: Any, prefix: str = "") -> T:
    """Build a validated dataclass from the mapping in a composed config or in the config.yaml of a run folder.

    ``prefix`` is written before the keys in error messages.
    """
    where = prefix.rstrip(".") or "the config"
    if not isinstance(mapping, Mapping):
        raise InputError(f"{where} must be a group of settings, got {mapping!r}", "see `proxlearn train --cfg job`")
    fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    mapping = {key: value for key, value in mapping.items() if key not in KEYS_OF_OLD_CONFIGS.get(cls, ())}
    for key in mapping:
        if key not in fields:
            raise InputError(f"unknown key `{prefix}{key}`", suggest_key(f"{prefix}{key}", ALL_KEYS))
    mapping = DEFAULTS_OF_OLD_CONFIGS.get(cls, {}) | mapping
    for name in fields:
        if name not in mapping:
            raise InputError(f"{where} lacks the key `{prefix}{name}`", f"set {prefix}{name}=...")
    return cls(**{name: setting_check(f)(prefix + name, mapping[name]) for name, f in fields.items()})
