"""Remedies for config keys that do not exist: suggestions of the key that the user most likely meant."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

RENAMED_KEYS = {"dataset.paper": "dataset.default_hyperparameters", "device.threads": "threads"}
"""Keys of earlier versions and their current names."""
SYNONYMS = {
    "h": ("lr", "learning_rate", "step_size", "stepsize", "eta"),
    "steps": ("epochs", "iterations", "n_steps", "num_steps", "max_steps", "max_iter"),
    "N": ("particles", "n_particles", "num_particles", "neurons", "n_neurons", "width", "hidden"),
    "epsilon": ("eps", "reg"),
    "dataset.path": ("file", "data", "csv", "table", "filename", "data_path", "input"),
    "dataset.target": ("label", "labels", "y", "column", "target_column", "label_column"),
    "hydra.run.dir": ("output", "out", "dir", "folder", "output_dir", "out_dir", "run_dir", "run.dir"),
    "hydra/launcher": ("launcher", "hydra.launcher"),
    "init_from": ("resume", "checkpoint", "init_checkpoint", "from"),
}
"""For each of these keys of proxlearn, the names that other programs use for it."""


def suggest_key(key: str, valid_keys: Sequence[str]) -> str:
    """Return the remedy for a key that is not among ``valid_keys``."""
    if (new_name := renamed_key(key)) is not None:
        return f"it is now called `{new_name}`"
    if key.startswith("dataset.initial."):
        return f"write +{key}=[-1,1] to add a block"
    group, leaf = key.partition(".")[0], _leaf(key).lower()
    same_spelling = [valid for valid in valid_keys if valid.lower() == key.lower()]
    same_leaf = [valid for valid in valid_keys if "." in valid and _leaf(valid).lower() == leaf]
    synonyms = [valid for valid, names in SYNONYMS.items() if key.lower() in names]
    for matches in (same_spelling, same_leaf, synonyms):
        # If a key inside a group has several matches, the keys of its own group are suggested below.
        if len(matches) == 1 or (matches and "." not in key):
            return "did you mean " + " or ".join(f"`{match}`" for match in matches) + "?"
    group_keys = {valid.partition(".")[2]: valid for valid in valid_keys if valid.startswith(f"{group}.")}
    if "." in key and group_keys:
        closest = difflib.get_close_matches(leaf, list(group_keys), n=1, cutoff=0.6)
        return (
            f"did you mean `{group_keys[closest[0]]}`?" if closest else "choose from " + ", ".join(group_keys.values())
        )
    by_leaf = {_leaf(valid): valid for valid in reversed(valid_keys)}
    closest_leaf = difflib.get_close_matches(leaf, list(by_leaf), n=1, cutoff=0.75)
    closest_key = difflib.get_close_matches(key, valid_keys, n=1, cutoff=0.6)
    if closest_leaf or closest_key:
        return f"did you mean `{by_leaf[closest_leaf[0]] if closest_leaf else closest_key[0]}`?"
    return "`proxlearn train --cfg job` lists all keys"


def renamed_key(key: str) -> str | None:
    """Return the current name of a key that was renamed, or that is inside a renamed group.

    Return None for any other key.
    """
    for old_name, new_name in RENAMED_KEYS.items():
        if key == old_name or key.startswith(f"{old_name}."):
            return new_name + key.removeprefix(old_name)
    return None


def _leaf(key: str) -> str:
    return key.rpartition(".")[2]
