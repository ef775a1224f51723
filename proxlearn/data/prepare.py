"""Split a table into a training part and a test part, and scale both; predictions use the same scalers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch

from proxlearn.config.schema import DatasetConfig
from proxlearn.core.samples import Samples
from proxlearn.data import scaling
from proxlearn.data.feature_encoding import FeatureEncoder
from proxlearn.data.scaling import Scaler, ScalerFit, check_scaled, check_scaler, max_scaled_magnitude
from proxlearn.data.table import Table
from proxlearn.data.table_problems import TableProblem, TableProblems
from proxlearn.errors import InputError

MAX_SPLIT_SEEDS = 1000
"""Maximum number of split seeds that are tried to find one with which every class has a row in the training part."""


@dataclass(frozen=True)
class PreparedData:
    """The scaled training and test parts of a dataset, in float64 on the CPU."""

    train: Samples
    test: Samples
    validation: Samples | None
    """Held-out rows, to which the scaler of the training part is applied; None unless the config requests them."""
    scaler: Scaler
    """Scaler that is fitted to the training part, and is also applied to new rows in prediction."""
    scaled_apart: bool
    """Whether the test part is scaled by a different scaler, as in the paper for some datasets."""
    target_scaler: Scaler
    """Scaler of a real target; the identity for classes."""
    rows: dict[str, np.ndarray]
    """Row numbers of the parts in the table: ``train``, ``test`` and, if the config requests it, ``validation``."""
    table: Table
    """The table with its features encoded."""
    encoder: FeatureEncoder
    """The encoding of the table's columns as features, fitted to the training part."""


def split_rows(table: Table, config: DatasetConfig, split_seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the row numbers of the training part and of the test part."""
    rows = len(table.X)
    order = np.arange(rows)
    if config.split == "shuffled":
        order = np.random.default_rng(split_seed).permutation(rows)
    train_rows = table.train_rows or math.ceil(config.train_fraction * rows)
    if not 0 < train_rows < rows:
        raise InputError(
            f"dataset.train_fraction={config.train_fraction:g} of {rows} rows leaves the training or test part empty",
            "choose another dataset.train_fraction",
        )
    return order[:train_rows], order[train_rows:]


def hold_out_rows(
    table: Table, train_rows: np.ndarray, fraction: float, split_seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Split the training part into rows for training and held-out rows, and return the row numbers of both.

    ``fraction`` is the share of held-out rows. If the table has classes, the split is stratified by class.
    """
    order = np.random.default_rng([split_seed, 1]).permutation(len(train_rows))
    if table.classes:
        order = order[np.argsort(table.target[train_rows[order]], kind="stable")]
    # Every (1/fraction)-th row is held out, with the rows sorted by class.
    steps = np.floor(fraction * np.arange(len(order) + 1) + 0.5)
    held = np.zeros(len(order), dtype=bool)
    held[order[np.diff(steps) > 0]] = True
    if held.all() or not held.any():
        problem = f"validation_fraction={fraction:g} leaves no row for validation or none for training"
        raise InputError(problem, "choose another validation_fraction")
    return train_rows[~held], train_rows[held]


def prepare(
    table: Table, config: DatasetConfig, split_seed: int, validation_fraction: float | None = None
) -> PreparedData:
    """Split a table, and scale the features and a real target with statistics of the training part.

    With ``scaling=paper``, the features of the test part are scaled with the statistics of the test part. If
    ``validation_fraction`` is given, this share of the training part is held out for validation.
    """
    train_rows, test_rows, held_rows = _parts(table, config, split_seed, validation_fraction)
    if _absent_classes(table, train_rows):
        raise _absent_classes_error(table, train_rows, config, split_seed, validation_fraction)
    encoder = fit_encoder(table, train_rows)
    if not encoder.is_identity:
        table = replace(table, X=encoder.transform(table.X, table.texts), columns=encoder.features)
    fit = _scaler_fit(table, config)
    scaler = fit(table.X[train_rows])
    test_scaler = fit(table.X[test_rows]) if config.scaling == "paper" else scaler
    is_regression = table.task == "regression"
    target_fit = scaling.FITS[config.target_scaling if is_regression else "none"]
    targets = table.target if table.target.ndim == 2 else table.target[:, None]
    target_scaler = target_fit(targets[train_rows])

    def samples(rows: np.ndarray, scale: Scaler) -> Samples:
        X = torch.from_numpy(scale(table.X[rows]))
        if is_regression:
            y = torch.from_numpy(target_scaler(targets[rows]))
            return Samples(X, y[:, 0] if y.shape[1] == 1 else y.T.contiguous())
        labels = torch.from_numpy(table.target[rows])
        # Two classes have the targets -1 and +1. For more classes, f is the probability of the true class (target 1).
        y = 2.0 * labels.double() - 1.0 if table.task == "binary" else torch.ones(len(rows), dtype=torch.float64)
        return Samples(X, y, labels)

    return PreparedData(
        train=samples(train_rows, scaler),
        test=samples(test_rows, test_scaler),
        validation=None if held_rows is None else samples(held_rows, scaler),
        scaler=scaler,
        scaled_apart=scaler != test_scaler,
        target_scaler=target_scaler,
        rows={"train": train_rows, "test": test_rows} | ({} if held_rows is None else {"validation": held_rows}),
        table=table,
        encoder=encoder,
    )


def _parts(
    table: Table, config: DatasetConfig, split_seed: int, validation_fraction: float | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return the row numbers of the training part, of the test part and of the held-out rows, if any."""
    train_rows, test_rows = split_rows(table, config, split_seed)
    if validation_fraction is None:
        return train_rows, test_rows, None
    train_rows, held_rows = hold_out_rows(table, train_rows, validation_fraction, split_seed)
    return train_rows, test_rows, held_rows


def fit_encoder(table: Table, rows: np.ndarray) -> FeatureEncoder:
    """Return the encoding of a table's columns as features, fitted to the given rows."""
    if not (table.texts or table.missing or table.ignored):
        return FeatureEncoder(table.columns)
    numbers = {name: table.X[rows, i] for i, name in enumerate(table.columns)}
    texts = {name: column[rows] for name, column in table.texts.items()}
    return FeatureEncoder.fit(numbers, texts, table.missing, table.ignored)


def check_magnitudes(prepared: PreparedData, dtypes: tuple[str | None, ...]) -> None:
    """Raise InputError if a column cannot be scaled, or if a number is too large before or after scaling.

    A scaled number is too large if its square overflows in all of the precisions ``dtypes``. Entries that are None are
    ignored.
    """
    table, limit = prepared.table, max_scaled_magnitude(*dtypes)
    names = [f"column `{name}`" for name in table.columns]
    target = [f"column `{name}`" for name in table.target_columns] or ["the target"]
    check_scaler(prepared.scaler, names)
    check_scaler(prepared.target_scaler, target)
    row_numbers = np.arange(len(table.X)) + 1 if table.row_numbers is None else table.row_numbers
    parts = {"train": prepared.train, "test": prepared.test, "validation": prepared.validation}
    for part, samples in parts.items():
        if samples is None:
            continue
        rows = prepared.rows[part]

        def row_name(i: int, rows: np.ndarray = rows) -> str:
            return f"data row {row_numbers[rows[i]]}"

        remedy = "use dataset.scaling=standard, correct the number, or delete the row"
        check_scaled(table.X[rows], samples.X.numpy(), names, limit, row_name, remedy)
        if samples.labels is None:
            remedy = "use dataset.target_scaling=standard, correct the number, or delete the row"
            targets = table.target[rows].reshape(len(rows), -1)
            check_scaled(targets, samples.y.numpy().T.reshape(len(rows), -1), target, limit, row_name, remedy)


def _scaler_fit(table: Table, config: DatasetConfig) -> ScalerFit:
    if config.scaling != "paper":
        return scaling.FITS[config.scaling]
    if table.paper_scaling is None:
        raise InputError(
            f"dataset.scaling=paper is not defined for dataset={config.name}", "use dataset.scaling=standard"
        )
    return table.paper_scaling


def _absent_classes(table: Table, train_rows: np.ndarray) -> list[str]:
    """Return the classes without a row in the training part; they cannot be learned."""
    if not table.classes:
        return []
    present = set(np.unique(table.target[train_rows]).tolist())
    return [name for i, name in enumerate(table.classes) if i not in present]


def _absent_classes_error(
    table: Table, train_rows: np.ndarray, config: DatasetConfig, split_seed: int, validation_fraction: float | None
) -> InputError:
    """Return the error for classes without a row in the training part.

    The remedy is a split_seed with which every class has such a row, if one is found.
    """
    absent = _absent_classes(table, train_rows)
    listed = ", ".join(f"`{name}`" for name in absent)
    problem = f"class {listed} has no row" if len(absent) == 1 else f"classes {listed} have no row"
    problem += " in the training part"
    if config.split != "shuffled":
        return InputError(problem, "use dataset.split=shuffled, or a larger dataset.train_fraction")
    for seed in range(split_seed + 1, split_seed + 1 + MAX_SPLIT_SEEDS):
        if not _absent_classes(table, _parts(table, config, seed, validation_fraction)[0]):
            return TableProblems(config.path or config.name, [TableProblem(problem, {"split_seed": seed})])
    return InputError(problem, "leave out the rows of these classes, or use a larger dataset.train_fraction")
