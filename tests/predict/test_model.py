"""A prediction depends only on the row and the cloud, not on the block size, the other rows or the particles' order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from proxlearn.data.new_rows import Chunk
from proxlearn.errors import InputError
from proxlearn.predict import model as model_module
from proxlearn.predict.evaluate import evaluate
from proxlearn.predict.model import Model
from proxlearn.predict.model_loader import find_model, load_model
from tests.small_runs import composed, run
from tests.views.report.pages import plane_run

ROWS = np.random.default_rng(1).normal(size=(23, 2))


@pytest.fixture(scope="module", params=["two", "three", "real"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    classes = {"two": ("no", "yes"), "three": ("a", "b", "c"), "real": None}[request.param]
    return load_model(plane_run(tmp_path_factory.mktemp(request.param), classes))


def assert_equal(model: Model, other: Model, X: np.ndarray = ROWS) -> None:
    for estimate in ("weighted", "unweighted"):
        expected, actual = model.predict(X, estimate), other.predict(X, estimate)
        for name in ("predicted", "probabilities", "spread"):
            np.testing.assert_allclose(getattr(actual, name), getattr(expected, name), rtol=1e-9, atol=1e-12)


def test_the_block_size_does_not_change_predictions(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = model.predict(ROWS)
    monkeypatch.setattr(model_module, "BLOCK", 1)
    np.testing.assert_allclose(model.predict(ROWS).spread, expected.spread, rtol=1e-9)
    np.testing.assert_allclose(model.predict(ROWS).predicted, expected.predicted, rtol=1e-9)


def test_a_row_is_predicted_alike_alone_and_among_others(model: Model) -> None:
    together = model.predict(ROWS)
    for i in (0, 7, 22):
        alone = model.predict(ROWS[i : i + 1])
        np.testing.assert_allclose(alone.predicted[0], together.predicted[i], rtol=1e-9)
        np.testing.assert_allclose(alone.probabilities[0], together.probabilities[i], rtol=1e-9)


def test_the_order_of_the_particles_does_not_matter(model: Model) -> None:
    order = torch.randperm(len(model.cloud.theta), generator=torch.Generator().manual_seed(0))
    cloud = replace(model.cloud, theta=model.cloud.theta[order], log_rho=model.cloud.log_rho[order])
    assert_equal(model, replace(model, cloud=cloud))


def test_equal_weights_make_both_estimates_equal(model: Model) -> None:
    equal = replace(model, cloud=replace(model.cloud, log_rho=torch.zeros_like(model.cloud.log_rho)))
    outputs = equal.mean_outputs(ROWS)
    torch.testing.assert_close(outputs["weighted"], outputs["unweighted"])


def test_metrics_do_not_depend_on_the_chunks(model: Model) -> None:
    labels = [model.classes[i % len(model.classes)] if model.classes else str(i / 7) for i in range(len(ROWS))]
    whole = evaluate(model, [Chunk(ROWS, labels)])
    split = evaluate(model, [Chunk(ROWS[i : i + 5], labels[i : i + 5]) for i in range(0, len(ROWS), 5)])
    assert whole["rows"] == split["rows"] == len(ROWS)
    for estimate in ("weighted", "unweighted"):
        assert split[estimate] == pytest.approx(whole[estimate], rel=1e-9)


def test_an_empty_table_has_no_metrics(model: Model) -> None:
    with pytest.raises(InputError, match="a header line but no rows"):
        evaluate(model, [])


def test_a_row_without_a_finite_prediction_is_refused_by_its_column(tmp_path: Path) -> None:
    model = load_model(plane_run(tmp_path, None))
    with pytest.raises(InputError, match=r"column `[xy]` holds -?1.7e\+308, which is too far from the training rows"):
        model.predict(np.array([[0.0, 1.0], [1.7e308, -1.7e308]]))


def test_a_run_without_checkpoints_has_no_model(tmp_path: Path) -> None:
    run(composed("dataset=sine", "N=5", "steps=0", "threads=1", "compile=off"), tmp_path)
    assert find_model(tmp_path) is not None
    for path in (tmp_path / "checkpoints").iterdir():
        path.unlink()
    assert find_model(tmp_path) is None
    with pytest.raises(InputError, match="holds no valid checkpoint; wait for the first checkpoint"):
        load_model(tmp_path)
