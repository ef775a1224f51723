"""The private objects of Hydra that have no public equivalent; only this module imports from ``hydra._internal``.

- The parser of Hydra's command-line flags: `proxlearn train` accepts the same flags, checks the config before Hydra
  acts on them, and allows flags between overrides, which ``hydra.main`` does not allow.
- The class of the callbacks in ``HydraContext``: the context, which launchers need, is public; this class is private.

Configs are composed with Hydra's public API, in proxlearn/config/compose.py.
"""

from __future__ import annotations

import argparse

from hydra._internal.callbacks import Callbacks
from hydra._internal.utils import get_args_parser
from hydra.core.config_loader import ConfigLoader
from hydra.types import HydraContext


def flag_parser() -> argparse.ArgumentParser:
    """Return a new parser of Hydra's flags and overrides."""
    return get_args_parser()


def launcher_context(loader: ConfigLoader) -> HydraContext:
    """Return the context in which a launcher composes its jobs; it has no callbacks."""
    return HydraContext(config_loader=loader, callbacks=Callbacks())
