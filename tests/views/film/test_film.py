"""A film shows the stored checkpoints of a run, each once and in order, in files that other programs play.

Frames are the stored clouds, thinned but not changed.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from proxlearn import cli
from proxlearn.core.neurons.function_neuron import FunctionNeuron
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.core.neurons.softmax import Softmax
from proxlearn.errors import InputError
from proxlearn.run import checkpoint
from proxlearn.run.checkpoint_file import checkpoint_path, list_checkpoints
from proxlearn.run.train import train
from proxlearn.views.film.cloud_history import CloudHistory, clouds, coordinate_names, read_cloud_history
from proxlearn.views.film.film import Film, select_frames
from proxlearn.views.film.video import FRAME_RATE, HOLD_SECONDS, find_ffmpeg, gif, mp4
from tests.conftest import config_of
from tests.small_runs import run, small


def run_of(folder: Path, *overrides: str) -> Path:
    train(config_of("N=20", "steps=6", "threads=1", *overrides), folder, "")
    return folder


@pytest.fixture(scope="module")
def sine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_of(tmp_path_factory.mktemp("sine"), "dataset=sine")


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes in the plane, whose names matplotlib would read as formulas."""
    folder = tmp_path_factory.mktemp("plane")
    rows = np.random.default_rng(0).normal(size=(60, 2))
    lines = [f"{x:.6f},{y:.6f},{'$in_{$' if x * x + y * y < 1 else 'out'}" for x, y in rows]
    (folder / "my.csv").write_text("\n".join(["$\\frac{$,<y>,label", *lines]) + "\n")
    overrides = ("dataset=csv", f"dataset.path={folder / 'my.csv'}", "dataset.target=label")
    return run_of(folder / "run", *overrides)


@given(st.sets(st.integers(0, 10**6), min_size=1, max_size=80), st.integers(2, 60))
def test_frames_are_stored_ones_in_order_with_the_first_and_the_last_evenly_by_decades(
    steps: set[int], most: int
) -> None:
    stored = np.array(sorted(steps))
    F = len(stored)
    empty = np.zeros(0)
    history = CloudHistory(stored, np.arange(F)[:, None, None], np.arange(F)[:, None], [], empty, empty, empty)
    selected = select_frames(history, most)
    assert len(selected.steps) <= most
    assert (np.diff(selected.steps) > 0).all()
    assert selected.steps[0] == stored[0]
    assert selected.steps[-1] == stored[-1]
    assert (stored[selected.theta[:, 0, 0]] == selected.steps).all()
    assert (selected.log_rho[:, 0] == selected.theta[:, 0, 0]).all()
    if most < F:
        # At every evenly spaced position, the nearest stored frame is selected.
        for position in np.linspace(np.log1p(stored[0]), np.log1p(stored[-1]), most):
            nearest = np.abs(np.log1p(stored) - position).min()
            assert np.abs(np.log1p(selected.steps) - position).min() == nearest


def test_every_stored_checkpoint_is_one_frame_of_the_gif(sine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["film", str(sine), "--seconds", "2"]) == 0
    checkpoints = len(list_checkpoints(sine / "checkpoints"))
    assert f"film.gif ({checkpoints} frames" in capsys.readouterr().out
    with Image.open(sine / "film.gif") as film:
        assert (film.n_frames, film.size, film.info["loop"]) == (checkpoints, (960, 540), 0)
        seconds = []
        for place in range(checkpoints):
            film.seek(place)
            seconds.append(film.info["duration"] / 1000)
            shades = film.convert("L").histogram()
            assert 0.01 < 1 - shades[255] / sum(shades) < 0.5
    assert sum(seconds) == pytest.approx(2 + HOLD_SECONDS, abs=0.01 * checkpoints)
    assert (sine / "film.gif").stat().st_size < 3e6


def test_fewer_frames_than_requested_give_a_notice(
    sine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints = len(list_checkpoints(sine / "checkpoints"))
    command = ["film", str(sine), "-o", str(tmp_path / "film.gif"), "--frames"]
    assert cli.main([*command, str(checkpoints + 1)]) == 0
    expected = (
        f"proxlearn: the film has {checkpoints} frames instead of {checkpoints + 1}: the run has no more checkpoints; "
        "train with"
    )
    assert expected in capsys.readouterr().err
    assert cli.main([*command, str(checkpoints)]) == 0
    assert "instead of" not in capsys.readouterr().err


@pytest.mark.parametrize("where", ["left", "above", "below"])
def test_cloud_function_and_risk_change_with_the_step(sine: Path, where: str) -> None:
    first, *_, last = Film(sine, 3, 300).images(480)
    box = {"left": (0, 40, 260, 270), "above": (290, 40, 480, 125), "below": (290, 150, 480, 270)}[where]
    assert first.crop(box).tobytes() != last.crop(box).tobytes()


@pytest.mark.parametrize("overrides", [["dataset=wdbc"], ["dataset=digits", "N=4", "compile=off"]])
def test_data_of_many_dimensions_have_a_film_too(overrides: list[str], tmp_path: Path) -> None:
    film = Film(run_of(tmp_path, *overrides), 2, 300)
    assert [image.size for image in film.images(320)] == [(320, 180)] * 2


def test_the_regions_are_those_of_the_whole_cloud_at_that_step(plane: Path) -> None:
    """Fewer drawn particles give the same regions; another step gives others."""
    box = (290, 40, 480, 125)
    whole, few = (next(Film(plane, 2, particles).images(480)).crop(box) for particles in (300, 3))
    assert whole.tobytes() == few.tobytes()
    last = list(Film(plane, 2, 300).images(480))[-1].crop(box)
    assert last.tobytes() != whole.tobytes()


def test_drawing_twice_gives_the_same_images(plane: Path) -> None:
    twice = [[image.tobytes() for image in Film(plane, 2, 300).images(320)] for _ in range(2)]
    assert twice[0] == twice[1]


def test_a_run_of_no_steps_is_a_film_of_one_frame(tmp_path: Path) -> None:
    run_of(tmp_path / "run", "dataset=sine", "steps=0")
    assert cli.main(["film", str(tmp_path / "run"), "-o", str(tmp_path / "one.gif")]) == 0
    with Image.open(tmp_path / "one.gif") as film:
        assert film.n_frames == 1


def test_damaged_checkpoints_are_skipped(sine: Path, tmp_path: Path) -> None:
    shutil.copytree(sine, tmp_path / "run")
    before = len(Film(sine, 60, 300))
    checkpoint_path(tmp_path / "run" / "checkpoints", 2).write_bytes(b"damaged")
    assert len(list(Film(tmp_path / "run", 60, 300).images(160))) == before - 1


def decoded(film: Path, size: tuple[int, int]) -> np.ndarray:
    """Return every frame as ffmpeg plays it, in grey: frames x height x width."""
    command = [find_ffmpeg(), "-loglevel", "error", "-i", str(film), "-f", "rawvideo", "-pix_fmt", "gray", "-"]
    played = subprocess.run(command, capture_output=True, check=True).stdout
    return np.frombuffer(played, dtype=np.uint8).reshape(-1, size[1], size[0])


def test_an_mp4_has_the_requested_duration(sine: Path, tmp_path: Path) -> None:
    path = tmp_path / "film.mp4"
    assert cli.main(["film", str(sine), "-o", str(path), "--frames", "3", "--seconds", "1.2"]) == 0
    played = decoded(path, (1280, 720))
    assert len(played) == 3 * round(1.2 / 3 * FRAME_RATE) + HOLD_SECONDS * FRAME_RATE
    about = subprocess.run([find_ffmpeg(), "-i", str(path)], capture_output=True, text=True).stderr
    assert "Video: h264" in about
    assert "1280x720" in about
    assert "Duration: 00:00:03.20" in about


def test_an_mp4_has_the_frames_in_their_order(tmp_path: Path) -> None:
    greys = (30, 120, 220)
    (tmp_path / "film.mp4").write_bytes(
        mp4((Image.new("RGB", (64, 48), (grey,) * 3) for grey in greys), 1 / FRAME_RATE)
    )
    played = decoded(tmp_path / "film.mp4", (64, 48))[:, 0, 0]
    assert len(played) == 3 + HOLD_SECONDS * FRAME_RATE
    assert played[:3].tolist() == pytest.approx(greys, abs=6)
    assert played[3:].tolist() == pytest.approx([greys[-1]] * (len(played) - 3), abs=6)


def test_a_gif_becomes_narrower_until_it_is_small_enough() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (4, 90, 160, 3), dtype=np.uint8)
    images = [Image.fromarray(frame) for frame in noise]
    whole = gif(images, 0.1, 10**9)
    smaller = gif(images, 0.1, len(whole) // 2)
    assert len(smaller) <= len(whole) // 2
    with Image.open(io.BytesIO(smaller)) as film:
        assert film.n_frames == 4
        assert film.width < 160
    with pytest.raises(InputError, match=r"GIF is too large even at the smallest scale.*--frames"):
        gif(images, 0.1, 100)


def test_wrong_arguments_are_one_line_and_write_nothing(
    sine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    empty = tmp_path / "empty"
    empty.mkdir()
    cleared = tmp_path / "cleared"
    shutil.copytree(sine, cleared)
    shutil.rmtree(cleared / "checkpoints")
    here = str(sine)
    for arguments, message in {
        ("nowhere",): "the folder nowhere does not exist",
        (str(empty),): "not a run folder",
        (str(cleared),): "contains no valid checkpoint",
        (here, "-o", "film.avi"): "cannot write a film as a .avi file; give a file name that ends in .mp4 or .gif",
        (here, "-o", "film"): "give a file name that ends in .mp4 or .gif",
        (here, "-o", "nowhere/film.gif"): "cannot write to nowhere/film.gif",
        (here, "--frames", "0"): "--frames must be a whole number >= 1",
        (here, "--seconds", "nan"): "--seconds must be a finite number",
    }.items():
        assert cli.main(["film", *arguments]) == 2, arguments
        (line,) = capsys.readouterr().err.splitlines()
        assert message in line
    assert {path.name for path in tmp_path.iterdir()} == {"empty", "cleared"}


def test_without_ffmpeg_an_mp4_is_refused_with_the_remedy(
    sine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    assert cli.main(["film", str(sine), "-o", str(tmp_path / "film.mp4")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "write a .gif file, install ffmpeg, or run `pip install 'proxlearn[film]'`" in line
    assert not (tmp_path / "film.mp4").exists()


def test_an_ffmpeg_that_fails_is_one_line(
    sine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A real process ends before it has read the film."""
    (tmp_path / "ffmpeg").write_text("#!/bin/sh\necho 'Unknown encoder libx264' >&2\nexit 1\n")
    (tmp_path / "ffmpeg").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    command = ["film", str(sine), "-o", str(tmp_path / "film.mp4"), "--frames", "2"]
    assert cli.main(command) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "Unknown encoder libx264; write a .gif file instead" in line
    assert not (tmp_path / "film.mp4").exists()


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


@pytest.mark.parametrize("neuron", [Perceptron(), Softmax(3), Softmax(3, True), Perceptron(num_outputs=3)])
@pytest.mark.parametrize("n_x", [1, 2, 3])
def test_every_coordinate_has_a_name_of_its_own(neuron, n_x):
    names = coordinate_names(neuron, tuple(f"x{i}" for i in range(n_x)), ("red", "green", "blue"))
    assert len(set(names)) == sum(neuron.coordinates(n_x).values()) == len(names)
    # The order is that of the neuron: a class's weight on a feature changes only that class's output.
    if isinstance(neuron, Softmax):
        index = names.index("w: green, x0")
        theta = torch.zeros(1, len(names), dtype=torch.float64)
        theta[0, index] = 50.0
        X = torch.zeros(1, n_x, dtype=torch.float64)
        X[0, 0] = 1.0
        assert neuron.outputs(theta, X)[0, :, 0].argmax() == 1
