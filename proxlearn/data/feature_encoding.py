"""Encode the columns of a user's table as features: replace missing values, and convert categories to 0/1 columns.

Transformers of scikit-learn are fitted to the training rows. Their fitted values are stored in model.json, from which
the same transformers are rebuilt for a prediction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

MISSING_CATEGORY = ""
"""The category that represents missing cells; cells that are not missing are never empty."""
MISSING_OPTIONS = (None, "median", "drop", "indicator")


@dataclass(frozen=True)
class FeatureEncoder:
    """The columns that a model reads, and their encoding as features; columns of numbers come before columns of text.

    Columns of numbers have the dtype float64, with NaN for missing values. Columns of text contain strings, with
    ``MISSING_CATEGORY`` for missing cells.
    """

    numbers: tuple[str, ...]
    """Names of the columns of numbers."""
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Categories that occur in the training rows, by the name of their column, in the order of the features."""
    missing: str | None = None
    """Treatment of missing values: None (they are an error), drop (rows with missing values are left out), median (the
    median of the column replaces them) or indicator (as median, and a further feature marks them)."""
    medians: tuple[float, ...] = ()
    """Values that replace missing numbers, one per column of numbers; empty unless missing is median or indicator."""
    indicators: tuple[str, ...] = ()
    """Columns of numbers with a further feature that marks missing values; empty unless missing is indicator."""
    ignored: tuple[str, ...] = ()
    """Columns of the training table that the model does not use; new tables may contain them."""

    @classmethod
    def fit(
        cls,
        numbers: Mapping[str, np.ndarray],
        texts: Mapping[str, np.ndarray],
        missing: str | None,
        ignored: tuple[str, ...] = (),
    ) -> FeatureEncoder:
        """Return an encoder that is fitted to the training rows.

        ``numbers`` and ``texts`` contain the columns by name; ``missing`` and ``ignored`` are attributes of the result.
        """
        # Imported here, because importing scikit-learn takes a second and `proxlearn data` does not need it.
        from sklearn.impute import MissingIndicator, SimpleImputer
        from sklearn.preprocessing import OneHotEncoder

        medians: tuple[float, ...] = ()
        indicators: tuple[str, ...] = ()
        if missing in ("median", "indicator") and numbers:
            X = np.column_stack(list(numbers.values()))
            # A column without any value in the training rows has no median; its missing values become 0.
            imputer = SimpleImputer(strategy="median", keep_empty_features=True).fit(X)
            medians = tuple(imputer.statistics_.tolist())
            if missing == "indicator":
                incomplete = MissingIndicator(features="missing-only", error_on_new=False).fit(X).features_
                indicators = tuple(list(numbers)[i] for i in incomplete)
        categories: dict[str, tuple[str, ...]] = {}
        if texts:
            encoder = OneHotEncoder().fit(_object_matrix(texts))
            categories = {name: tuple(map(str, found)) for name, found in zip(texts, encoder.categories_, strict=True)}
        return cls(tuple(numbers), categories, missing, medians, indicators, ignored)

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features.

        The features are the numeric columns, the missing-value indicators, and the one-hot encoded categories. For a
        column with two categories, only the second one is a feature.
        """
        one_hot = (
            f"{name}={category or 'missing'}"
            for name, categories in self.categories.items()
            for category in _encoded(categories)
        )
        return (*self.numbers, *(f"{name} missing" for name in self.indicators), *one_hot)

    @property
    def is_identity(self) -> bool:
        """Whether the encoder has no categories, no treatment of missing values and no ignored columns."""
        return not (self.categories or self.missing or self.ignored)

    def transform(self, numbers: np.ndarray, texts: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the features of rows, which are given as a matrix of numbers and as columns of text by name.

        A category that does not occur in the training rows is encoded as 0 in all features of its column.
        """
        from sklearn.impute import SimpleImputer
        from sklearn.preprocessing import OneHotEncoder

        parts = [numbers]
        if self.medians and len(numbers):
            # An imputer fitted to a single row stores this row as the medians, so it is fitted to the stored medians.
            parts = [SimpleImputer(strategy="median", keep_empty_features=True).fit([self.medians]).transform(numbers)]
        places = [self.numbers.index(name) for name in self.indicators]
        parts += [np.isnan(numbers[:, places]).astype(np.float64)] if places else []
        if self.categories and len(numbers):
            matrix = _object_matrix({name: texts[name] for name in self.categories})
            values = [np.array(categories, dtype=object) for categories in self.categories.values()]
            encoder = OneHotEncoder(categories=values, handle_unknown="ignore", sparse_output=False)
            one_hot = encoder.fit(np.array([[categories[0] for categories in values]], dtype=object)).transform(matrix)
            # For two categories, one feature is enough: that of the second category.
            kept = [len(_encoded(c)) < len(c) and i == 0 for c in self.categories.values() for i in range(len(c))]
            parts.append(one_hot[:, ~np.array(kept)])
        X: np.ndarray = np.ascontiguousarray(np.column_stack(parts)) if len(parts) > 1 else parts[0]
        return X if len(numbers) else np.empty((0, len(self.features)))

    def unknown(self, texts: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return masks of the cells whose category does not occur in the training rows, by column name.

        Columns without such cells are left out.
        """
        masks = {name: ~np.isin(texts[name].astype(str), known) for name, known in self.categories.items()}
        return {name: mask for name, mask in masks.items() if mask.any()}

    def description(self) -> dict[str, Any]:
        """Return the encoding as a dictionary of JSON values, which is stored in model.json."""
        return {
            "numbers": list(self.numbers),
            "categories": {name: list(categories) for name, categories in self.categories.items()},
            "missing": self.missing,
            "medians": list(self.medians),
            "indicators": list(self.indicators),
            "ignored": list(self.ignored),
        }

    @classmethod
    def from_description(cls, values: Any) -> FeatureEncoder:
        """Return the encoding that ``values``, a dictionary returned by ``description``, contains.

        Raise TypeError, KeyError or ValueError if the dictionary is not valid.
        """
        texts = {key: tuple(values[key]) for key in ("numbers", "indicators", "ignored")}
        categories = {str(name): tuple(known) for name, known in values["categories"].items()}
        medians = tuple(float(median) for median in values["medians"])
        for strings in (*texts.values(), *categories.values()):
            if not all(isinstance(text, str) for text in strings):
                raise TypeError("a name or a category is not a string")
        encoder = cls(texts["numbers"], categories, values["missing"], medians, texts["indicators"], texts["ignored"])
        if encoder.missing not in MISSING_OPTIONS or not all(categories.values()) or not np.isfinite(medians).all():
            raise ValueError("the value of `missing`, a list of categories or a median is not valid")
        is_imputed = encoder.missing in ("median", "indicator")
        if len(medians) != (len(encoder.numbers) if is_imputed else 0) or not set(encoder.indicators) <= set(
            encoder.numbers
        ):
            raise ValueError("the medians or the indicators do not match the columns")
        return encoder


def _encoded(categories: tuple[str, ...]) -> tuple[str, ...]:
    """Return the categories that are encoded as features: all of them, or only the second one if there are two."""
    return categories[1:] if len(categories) == 2 else categories


def _object_matrix(texts: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.column_stack([column.astype(object) for column in texts.values()])
