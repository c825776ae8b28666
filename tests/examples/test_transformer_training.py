"""examples/transformer: reading DNA, optimizers, and the command on one rank and on several."""

from __future__ import annotations

import doctest
import gzip
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import dna
import numpy as np
import pytest
import train
from optim import SGD, Adam

import ringcore as rc
from tests.examples.decoders import U

ROOT = Path(__file__).parents[2]
SMALL = ("--layers", "2", "--width", "32", "--heads", "2", "--kv-heads", "1", "--hidden", "64")


def run(tmp_path: Path, *args: str) -> dict[str, Any]:
    """What the command writes with --json."""
    file = tmp_path / "run.json"
    assert train.main([*SMALL, *args, "--json", str(file)]) == 0
    return json.loads(file.read_text())


# ---------------------------------------------------------------------------------- training


@pytest.mark.parametrize(
    ("optimizer", "dtype"), [("sgd", "float64"), ("adam", "float64"), ("adam", "float32")]
)
def test_training_is_the_same_on_one_two_and_three_ranks(tmp_path, optimizer, dtype):
    """Within 100 u after four steps; some 10 are seen."""
    tolerance = 100 * U[dtype]
    args = ("--length", "499", "--steps", "4", "--optimizer", optimizer, "--dtype", dtype)
    one, *others = (run(tmp_path, *args, "--ranks", str(ranks)) for ranks in (1, 2, 3))
    assert one["losses"][-1] != one["losses"][0]
    for other in others:
        assert other["losses"] == pytest.approx(one["losses"], rel=tolerance, abs=0)
        for key in ("test", "gradient", "weights"):
            assert other[key] == pytest.approx(one[key], rel=tolerance, abs=0), key
        assert len(other["digests"]) == other["ranks"] and len(set(other["digests"])) == 1
        assert len(other["tokens"]) == other["ranks"] and sum(other["tokens"]) == 499


def test_it_learns_something_of_dna(tmp_path):
    """On bases that it was never trained on it does better than their composition alone would."""
    told = run(tmp_path, "--length", "4003", "--steps", "25", "--rate", "1e-2", "--ranks", "2")
    test, composition = told["test"], told["markov"]["0"]
    assert test["before"] == pytest.approx(np.log(4), rel=1e-6)  # a guess among four: the head begins at 0
    assert test["after"] < composition < test["before"]
    assert np.mean(told["losses"][-5:]) < np.mean(told["losses"][:5])


def test_the_same_seed_makes_the_same_run_and_another_one_another(tmp_path):
    args = ("--length", "100", "--steps", "2", "--ranks", "2")
    digests = [run(tmp_path, *args, "--seed", seed)["digests"][0] for seed in ("0", "0", "1")]
    assert digests[0] == digests[1] != digests[2]


def test_adam_is_the_recursion_of_its_paper():
    """Kingma and Ba, algorithm 1, number by number."""
    rate, a, b, eps = 0.02, 0.9, 0.99, 1e-8
    rng = np.random.default_rng(0)
    weights, gradients = rng.standard_normal(3), rng.standard_normal((5, 3))
    want = weights.tolist()
    for i in range(3):
        m = v = 0.0
        for t, g in enumerate(gradients[:, i].tolist(), start=1):
            m = a * m + (1 - a) * g
            v = b * v + (1 - b) * g**2
            want[i] -= rate * (m / (1 - a**t)) / ((v / (1 - b**t)) ** 0.5 + eps)
    adam = Adam(rate)
    for gradient in gradients:
        adam.step(weights, gradient)
    assert weights == pytest.approx(want, rel=1e-13)


def test_sgd_goes_against_the_gradient():
    weights = np.array([1.0, 2.0], np.float32)
    SGD(rate=0.5).step(weights, np.array([1.0, -4.0], np.float32))
    assert weights.tolist() == [0.5, 4.0] and weights.dtype == np.float32


# --------------------------------------------------------------------------------------- dna


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_reads_the_first_record(tmp_path, packed, newline):
    text = newline.join([">one some text", "ACGT", "acgu", "NRT", "", ">two", "AAAA", ""]).encode()
    path = tmp_path / "x"
    path.write_bytes(gzip.compress(text) if packed else text)
    assert dna.read(path).tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 4, 4, 3]


def test_a_truncated_gzip_file_is_wrong_input(tmp_path, capsys):
    path = tmp_path / "cut.fa.gz"
    path.write_bytes(
        gzip.compress(b">one\n" + bytes(np.random.default_rng(0).choice([65, 67, 71, 84], 1000)))[:-50]
    )
    with pytest.raises(SystemExit) as end:
        train.main([str(path), "--ranks", "2"])
    assert end.value.code == 2 and "is broken" in capsys.readouterr().err


def test_each_token_has_the_letter_that_follows_it_on_whatever_rank_that_is():
    genome = np.random.default_rng(0).integers(0, 5, 60).astype(np.uint8)
    layout = rc.Layout.striped(length=23, ranks=3)

    def on_rank(ring):
        return dna.shard(genome if ring.rank == 0 else None, 30, ring, layout)

    tokens, labels = (
        layout.unshard(shards, axis=0) for shards in zip(*rc.run_ranks(3, on_rank), strict=True)
    )
    assert tokens.tolist() == genome[30:53].tolist()
    assert labels.tolist() == genome[31:54].tolist()


@pytest.mark.parametrize("order", [0, 1, 3])
def test_markov_loss_by_counting(order):
    rng = np.random.default_rng(order)
    trained, asked = (rng.choice(5, n, p=[0.3, 0.2, 0.1, 0.35, 0.05]).astype(np.uint8) for n in (500, 80))

    def context(letters: np.ndarray, i: int) -> tuple[int, ...]:
        return tuple([0] * max(0, order - i) + letters[max(0, i - order) : i].tolist())

    counts: dict[tuple[tuple[int, ...], int], float] = {}
    for i in range(1, len(trained)):
        key = context(trained, i), int(trained[i])
        counts[key] = counts.get(key, 0.5) + 1
    nats = []
    for i in range(1, len(asked)):
        if asked[i] < 4:
            of = [counts.get((context(asked, i), base), 0.5) for base in range(4)]
            nats.append(-np.log(of[asked[i]] / sum(of)))
    assert dna.markov_loss(trained, asked, order) == pytest.approx(np.mean(nats), rel=1e-12)


# ------------------------------------------------------------------------------- the command


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--length", "46344"], "--length must be at most 46343"),
        (["--length", "0"], "length must be at least 1. Got 0."),
        (["--chunk", "0"], "chunk must be at least 1. Got 0."),
        (["--ranks", "0"], "--ranks must be at least 1. Got 0."),
        (["--heads", "3"], "heads must be a multiple of kv_heads. Got heads=3, kv_heads=2."),
        (["--width", "12"], "Got width=12, heads=4."),
        (["--layers", "0"], "layers must be at least 1. Got 0."),
        (["--layout", "spiral"], "invalid choice: 'spiral'"),
        (["nowhere.fa", "--ranks", "2"], "nowhere.fa"),
        ([__file__], "must be FASTA"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(capsys, args, message):
    with pytest.raises(SystemExit) as end:
        train.main(args)
    err = capsys.readouterr().err
    assert end.value.code == 2
    assert message in err and err.count("\n") == 1


def test_only_the_first_process_of_mpirun_says_what_is_wrong(capsys, monkeypatch):
    monkeypatch.setenv("PMI_RANK", "1")
    monkeypatch.setenv("PMI_SIZE", "2")
    with pytest.raises(SystemExit) as end:
        train.main(["--length", "0"])
    assert end.value.code == 2 and capsys.readouterr().err == ""


def test_runs_as_a_script_from_anywhere(tmp_path):
    roots = os.pathsep.join(str(ROOT / folder) for folder in (".", "backends", "transports"))
    script = ROOT / "examples" / "transformer" / "train.py"
    done = subprocess.run(
        [sys.executable, str(script), *SMALL, "--steps", "1", "--length", "50", "--ranks", "2"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": roots},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\nstep ") == 1 and "Markov" in done.stdout


@pytest.mark.parametrize("name", ["dna", "optim", "pieces"])
def test_examples_in_docstrings(name):
    results = doctest.testmod(importlib.import_module(name))
    assert results.attempted and not results.failed
