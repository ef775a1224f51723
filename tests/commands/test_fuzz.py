"""Random command lines through composition and validation: accepted or rejected in one line, never a traceback."""

import random

import pytest
from small_runs import FULL

from proxlearn.commands.train import preflight
from proxlearn.config.schema import DatasetConfig, DeviceConfig, TrainConfig
from proxlearn.errors import InputError

pytestmark = pytest.mark.faults

COUNT = 2000 if FULL else 200
CHUNKS = 10

KEYS = [
    *(key for key in TrainConfig.__dataclass_fields__),
    *(f"dataset.{key}" for key in DatasetConfig.__dataclass_fields__),
    *(f"device.{key}" for key in DeviceConfig.__dataclass_fields__),
    *("dataset", "device", "logger", "recipe", "logger.name", "dataset.initial.a", "dataset.initial.w[0]"),
    *("hydra.run.dir", "hydra.run", "hydra", "hydra.mode", "hydra.verbose", "hydra.job.chdir", "hydra.sweep.dir"),
    *("hydra.callbacks", "hydra.launcher", "hydra/launcher", "hydra.job_logging", "hydra.searchpath", "hydra.job.name"),
    *("hydra.output_subdir", "hydra.runtime.output_dir", "hydra.help", "hydra.sweeper.params", "hydra.job.env_set.A"),
    *("betta", "Beta", "β", "", ".", "..", "a.b.c", "dataset.", ".dataset", "dataset..name", "0", "[0]", "_target_"),
    *("dataset@device", "dataset@", "/dataset", "../dataset", "dataset/wdbc", "key with space", "k\u0000", "defaults"),
]
VALUES = [
    *("0", "1", "-1", "7", "0.05", "1e-3", "1e6", "1e308", "1e309", "-1e309", "1e-400", "nan", "inf", "-inf", "-0.0"),
    *("9" * 30, "9" * 400, "-" + "9" * 400, "9" * 5000, "1.0", "1.5", "0x10", "1_000", "1__0", "+5", "٣", "½", "１"),
    *("null", "true", "false", "yes", "None", "~", "???", "", "''", '""', "a", "abc", "wdbc", "sine", "cpu", "cuda"),
    *("float32", "float64", "log", "dense", "paper", "literal", "closed_form", "uniform", "pdf", "csv", "consistent"),
    *("[]", "{}", "[1,2]", "[1,[2,[3]]]", "{a:1}", "{a:{b:{c:[1,2]}}}", "[-1,1]", "[1,-1]", "[nan,1]", "[1e400,2]"),
    *("{a:[0,1],b:[0,1],w:[0,1]}", "{_target_:os.system}", "{1:2}", "{null:1}", "{true:[0,1]}", "[" * 60 + "]" * 60),
    *("1,2,3", "range(1,5)", "choice(1,2)", "glob(*)", "sort(3,1)", "shuffle(1,2)", "int(5)", "int(x)", "str(1)"),
    *(
        "float(nan)",
        "bool(2)",
        "extend_list(1)",
        "interval(0,1)",
        "tag(a,1)",
        "nosuch(1)",
        "json_str(1)",
        "range(1,2,0)",
    ),
    *(
        "${beta}",
        "${nosuch}",
        "${beta",
        "${oc.env:HOME}",
        "${oc.env:NO_SUCH}",
        "${h}",
        "${dataset}",
        "${.beta}",
        "${..}",
    ),
    *(
        "${proxlearn.run_name:}",
        "${hydra:run.dir}",
        "${nosuch:1}",
        "${oc.decode:'[1'}",
        "${oc.create:{a:1}}",
        "$",
        "${}",
    ),
    *(
        "a b",
        "a\\",
        "'a",
        '"a',
        "a=b",
        "a:b",
        "a,b",
        "a#b",
        "é",
        "日本",
        "\u202e",
        "\ud800",
        "\x1b[31m",
        "\n",
        "a\tb",
        "\0",
    ),
    *("/", ".", "..", "~", "/proc", "/dev/null", "/no/such/folder", "x" * 300, "x/" * 3000, "../..", "a\0b", "con"),
    *("RUN", "MULTIRUN", "mine", "@", "%s", "{x", "x}", "(", ")", "!!python/object:os", "&a", "*a", "|", ">", "- a"),
]
GOOD = [
    *(
        "beta=0.05",
        "N=30",
        "steps=1e6",
        "h=1e-3",
        "epsilon=2",
        "delta=0",
        "L=10",
        "seed=3",
        "split_seed=4",
        "threads=2",
    ),
    *("log_every=null", "log_every=10", "checkpoint_every=7", "keep_checkpoints=1", "overwrite=true", "init_from=null"),
    *(
        "kernel=dense",
        "drift=first_variation",
        "weights=uniform",
        "rho0=pdf",
        "tolerance=log",
        "orientation=consistent",
    ),
    *("device=cpu", "device.dtype=float64", "dataset=wdbc", "dataset.initial.w=[-2,2]", "++beta=1", "recipe=paper"),
    *(
        "hydra.run.dir=mine",
        "hydra.verbose=true",
        "hydra.job.name=mine",
        "beta=${epsilon}",
        "beta=float(3)",
        "seed=7.0",
    ),
]
FLAGS = [
    *("-m", "--multirun", "--cfg", "--resolve", "--info", "--config-name=nosuch", "--config-dir=/no/such", "--nosuch"),
    *(
        "--config-name=",
        "-cn",
        "--package",
        "-x",
        "--",
        "--run",
        "train",
        "dataset",
        "=",
        "==",
        "~",
        "+",
        "++",
        "~beta",
    ),
]


def command_line(draw: random.Random) -> list[str]:
    """Draw one to four words: mostly overrides, some of them valid, sometimes a flag or random characters."""
    args = ["dataset=sine"] if draw.random() < 0.7 else []
    for _ in range(draw.randint(1, 4)):
        kind = draw.random()
        if kind < 0.5:
            args.append(draw.choice(GOOD))
        elif kind < 0.54:
            args.append(draw.choice(FLAGS))
        elif kind < 0.58:
            args.append(
                "".join(chr(draw.choice((draw.randrange(1, 128), draw.randrange(1, 0x3000)))) for _ in range(9))
            )
        else:
            prefix = draw.choice(("", "", "", "", "", "+", "++", "~"))
            args.append(f"{prefix}{draw.choice(KEYS)}={draw.choice(VALUES)}")
    return args


def verdict(args: list[str]) -> int:
    """Return the exit code of a command line without running it."""
    try:
        preflight(args)
    except InputError as error:
        return error.exit_code if "\n" not in str(error) else -1
    except SystemExit as ending:
        # argparse ends the process for an unknown flag.
        return ending.code
    return 0


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_any_command_line_is_accepted_or_refused_in_one_line(chunk, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    codes = []
    for seed in range(chunk, COUNT, CHUNKS):
        args = command_line(random.Random(seed))
        try:
            codes.append(verdict(args))
        except BaseException as error:
            raise AssertionError(f"seed {seed}: {args!r}") from error
    assert set(codes) == {0, 2}
    assert "Traceback" not in capfd.readouterr().err
    assert not list(tmp_path.iterdir())
