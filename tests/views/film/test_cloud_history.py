"""Frames are the stored clouds, thinned but not changed."""

import numpy as np
import pytest
import torch
from small_runs import run, small

from proxlearn.core.neurons.function_neuron import FunctionNeuron
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.core.neurons.softmax import SoftmaxNeuron
from proxlearn.errors import InputError
from proxlearn.run import checkpoint
from proxlearn.run.checkpoint_file import checkpoint_path, list_checkpoints
from proxlearn.views.film.cloud_history import clouds, coordinate_names, read_cloud_history


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("run")
    run(small(steps=100, beta=0.1, epsilon=1.0), path)
    return path


def test_frames_hold_the_stored_clouds(folder):
    frames = read_cloud_history(folder)
    stored = [checkpoint.load(path).cloud for _, path in reversed(list_checkpoints(folder / "checkpoints"))]
    assert frames.steps.tolist() == [cloud.step for cloud in stored]
    for theta, log_rho, cloud in zip(frames.theta, frames.log_rho, stored, strict=True):
        np.testing.assert_array_equal(theta, cloud.theta.float().numpy())
        np.testing.assert_allclose(np.exp(log_rho), (cloud.rho / cloud.rho.sum()).numpy(), rtol=1e-5)
    assert frames.columns == ["a", "b", "w"]


@pytest.mark.parametrize("count", [1, 2, 5, 7])
def test_fewer_frames_and_particles_are_a_part_of_all(folder, count):
    all_frames, some = read_cloud_history(folder), read_cloud_history(folder, particles=count, frames=count)
    assert len(some.steps) == count
    assert some.theta.shape == (count, count, 3)
    if count > 1:
        assert (some.steps[0], some.steps[-1]) == (all_frames.steps[0], all_frames.steps[-1])
    rows = np.isin(all_frames.steps, some.steps)
    np.testing.assert_array_equal(some.theta, all_frames.theta[rows][:, some.particles])
    # Shares are of the whole cloud, not of the selected particles.
    np.testing.assert_array_equal(some.log_rho, all_frames.log_rho[rows][:, some.particles])


def test_the_heaviest_particle_is_selected(folder):
    all_frames, some = read_cloud_history(folder), read_cloud_history(folder, particles=3)
    assert int(all_frames.log_rho[-1].argmax()) in some.particles
    assert len(set(some.particles.tolist())) == 3


def test_axes_are_orthonormal_and_explain_most(folder):
    frames = read_cloud_history(folder)
    np.testing.assert_allclose(frames.axes @ frames.axes.T, np.eye(2), atol=1e-5)
    points = (frames.theta - frames.mean).reshape(-1, 3).astype(float)
    np.testing.assert_allclose(points.mean(0), 0, atol=1e-5)
    largest = np.linalg.svd(points, compute_uv=False)[:2]
    np.testing.assert_allclose((frames.projected.reshape(-1, 2) ** 2).sum(0), largest**2, rtol=1e-3)


def test_a_single_particle_has_axes_of_zero(tmp_path):
    run(small("N=1", steps=0), tmp_path)
    frames = read_cloud_history(tmp_path)
    assert frames.projected.shape == (1, 1, 2)
    assert not frames.axes.any()


def test_damaged_checkpoints_are_left_out(tmp_path):
    run(small(steps=20), tmp_path)
    before = read_cloud_history(tmp_path).steps.tolist()
    for step in (before[-1], before[2]):
        checkpoint_path(tmp_path / "checkpoints", step).write_bytes(b"nonsense")
    left = [step for step in before if step not in (before[-1], before[2])]
    assert read_cloud_history(tmp_path).steps.tolist() == left
    # The newest valid checkpoint is the last frame even if there are only two frames.
    assert read_cloud_history(tmp_path, frames=2).steps.tolist() == [left[0], left[-1]]


def test_a_run_that_stored_nothing_is_refused(tmp_path):
    run(small(steps=0), tmp_path)
    for _, path in list_checkpoints(tmp_path / "checkpoints"):
        path.unlink()
    assert not list(clouds(tmp_path))
    with pytest.raises(InputError, match="no valid checkpoint"):
        read_cloud_history(tmp_path)


@pytest.mark.parametrize("blocks", [{"c": 1}, {"w": 5}, {"c": 5}, {"c": 2, "w": 3}, {"c": 3}, {"c": 6, "d": 7}])
@pytest.mark.parametrize("classes", [(), ("red", "green"), ("red", "green", "blue")])
def test_a_block_of_any_name_and_length_has_names(blocks, classes):
    neuron = FunctionNeuron(lambda theta, x: x.sum(), blocks)
    names = coordinate_names(neuron, ("x0", "x1"), classes)
    assert len(set(names)) == len(names) == sum(blocks.values())


@pytest.mark.parametrize("neuron", [Perceptron(), SoftmaxNeuron(3), SoftmaxNeuron(3, True), Perceptron(num_outputs=3)])
@pytest.mark.parametrize("n_x", [1, 2, 3])
def test_every_coordinate_has_a_name_of_its_own(neuron, n_x):
    names = coordinate_names(neuron, tuple(f"x{i}" for i in range(n_x)), ("red", "green", "blue"))
    assert len(set(names)) == sum(neuron.coordinates(n_x).values()) == len(names)
    # The order is that of the neuron: a class's weight on a feature changes only that class's output.
    if isinstance(neuron, SoftmaxNeuron):
        index = names.index("w: green, x0")
        theta = torch.zeros(1, len(names), dtype=torch.float64)
        theta[0, index] = 50.0
        X = torch.zeros(1, n_x, dtype=torch.float64)
        X[0, 0] = 1.0
        assert neuron.outputs(theta, X)[0, :, 0].argmax() == 1
