"""Configs hold values; anything that would make Hydra import or call code is rejected in one line."""

import pickle

import pytest

from proxlearn.cli import main
from proxlearn.commands.train import preflight
from proxlearn.errors import InputError

CALL = "{_target_: os.mkdir, path: EXPLODED}"
REFUSED = [
    ["+hydra.callbacks.mine=" + CALL],
    ["+hydra.launcher.mine=" + CALL],
    ["hydra.launcher._target_=os.mkdir", "+hydra.launcher.path=EXPLODED"],
    ["hydra.launcher._target_=hydra._internal.core_plugins.basic_launcher.logging.os.mkdir"],
    ["+hydra.sweeper.mine=" + CALL, "-m"],
    ["hydra.sweeper._target_=os.mkdir", "-m"],
    ["+hydra.sweeper.params={hydra.launcher._target_: os.mkdir}", "-m"],
    ["+hydra.job_logging.handlers.mine={class: os.mkdir, path: EXPLODED}"],
    ['+hydra.job_logging.formatters.mine={"()": os.mkdir, path: EXPLODED}'],
    ["+hydra.hydra_logging.handlers.mine={class: os.mkdir, path: EXPLODED}"],
    ["hydra/job_logging=default"],
    ["+hydra.job.env_set.LD_PRELOAD=EXPLODED"],
    ["hydra.job.chdir=true"],
    ["hydra.searchpath=[pkg://this]"],
    ["hydra.searchpath=[file:///tmp]"],
    ["+dataset._target_=os.mkdir"],
    ["+dataset.initial.a._target_=os.mkdir"],
    ["--experimental-rerun", "PICKLE"],
    ["--config-path", "/tmp"],
]


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        import os

        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("args", REFUSED, ids=lambda args: args[0][:40])
def test_code_on_the_command_line_is_refused(args, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exploded, pickled = tmp_path / "exploded", tmp_path / "pickled"
    pickled.write_bytes(pickle.dumps(Bomb(exploded)))
    args = [arg.replace("EXPLODED", str(exploded)).replace("PICKLE", str(pickled)) for arg in args]
    assert main(["train", "dataset=sine", "steps=0", "N=2", *args]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("proxlearn: ")
    assert [path.name for path in tmp_path.iterdir()] == ["pickled"]


FILES = {
    "dataset/mine.yaml": "_target_: os.mkdir\npath: EXPLODED",
    "deep.yaml": "a: [{b: [{_target_: os.mkdir}]}]",
    "escaped.yaml": '"\\x5ftarget_": os.mkdir',
    "package.yaml": "hydra: {searchpath: ['pkg://this']}",
    "object.yaml": "!!python/object/apply:os.mkdir ['EXPLODED']",
    "broken.yaml": "{",
    "elsewhere.yaml": "hydra: {searchpath: ['file:///tmp']}",
}


@pytest.mark.parametrize("name", FILES)
def test_code_in_a_users_config_is_refused(name, tmp_path, capsys):
    configs, exploded = tmp_path / "configs", tmp_path / "exploded"
    path = configs / name
    path.parent.mkdir(parents=True)
    path.write_text(FILES[name].replace("EXPLODED", str(exploded)))
    chosen = [f"+{path.parent.name}={path.stem}"] if path.parent != configs else ["--config-name", path.stem]
    assert main(["train", "--config-dir", str(configs), *chosen]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert path.name in line
    assert not exploded.exists()


def test_a_users_config_of_values_is_welcome(tmp_path):
    configs = tmp_path / "configs"
    (configs / "recipe").mkdir(parents=True)
    (configs / "recipe" / "mine.yaml").write_text("# @package _global_\ndefaults: [paper]\nrecipe: mine\nbeta: 7\n")
    preflight(["--config-dir", str(configs), "dataset=sine", "recipe=mine"])
    (configs / "recipe" / "mine.yaml").write_text("# @package _global_\ndefaults: [paper]\nrecipe: mine\nbeta: -7\n")
    with pytest.raises(InputError, match="beta must be"):
        preflight(["--config-dir", str(configs), "dataset=sine", "recipe=mine"])
