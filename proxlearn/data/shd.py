"""The loader of SHD, the Semeion handwritten digits: 16 x 16 binary pixels and ten classes, as used in the paper."""

from __future__ import annotations

import numpy as np

from proxlearn.config.schema import DatasetConfig
from proxlearn.data import dataset_files, scaling
from proxlearn.data.dataset_files import DataFile, Web
from proxlearn.data.table import DatasetInfo, Table

FILE = DataFile(
    "semeion.data",
    "f43228ae3da5ea6a3c95069d53450b86166770e3b719dcc333182128fe08d4b1",
    Web("https://archive.ics.uci.edu/ml/machine-learning-databases/semeion/semeion.data"),
)
INFO = DatasetInfo(1593, 256, 10, "UCI archive, data set 178", "CC BY 4.0", FILE, reads=("path",))


def load(config: DatasetConfig) -> Table:
    # A row contains 256 pixels, each 0 or 1, followed by the one-hot label.
    numbers = np.array(dataset_files.read(FILE, config.path).split(), dtype=np.float64).reshape(-1, 266)
    return Table(
        2 * numbers[:, :256] - 1,
        numbers[:, 256:].argmax(axis=1),
        tuple(f"pixel_{row}_{column}" for row in range(16) for column in range(16)),
        "multiclass",
        FILE.sha256,
        classes=tuple("0123456789"),
        paper_scaling=scaling.none,
        image=(16, 16),
    )
