"""The command as people use it: arguments in, files and one line of error out."""

from __future__ import annotations

import csv
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringcore import cli
from ringcore.cli import main
from ringcore.cli.genome import command, encode, estimate, files, lead, memory, settings
from ringcore.cli.genome.lead import FILES
from tests.cli.genomes import analysis, random_bases
from tests.cli.kmers import reverse_complement

Write = Callable[..., Path]

PIECE, BEFORE, BETWEEN = random_bases(80, seed=31), random_bases(100, seed=32), random_bases(120, seed=33)
GENOME = BEFORE + PIECE + BETWEEN + reverse_complement(PIECE)
LINE = ["100", "180", "300", "380", "-", "1.000", "80", "inverted"]


def bed(out: Path) -> list[list[str]]:
    with (out / "repeats.bed").open() as file:
        return list(csv.reader(file, delimiter="\t"))


def bedgraph(out: Path) -> dict[tuple[str, int], float]:
    bits = {}
    with gzip.open(out / "bits.bedgraph.gz", "rt") as file:
        assert next(file).startswith("track type=bedGraph")
        for line in file:
            name, start, end, value = line.split("\t")
            for place in range(int(start), int(end)):
                assert (name, place) not in bits
                bits[name, place] = float(value)
    return bits


def summary(out: Path) -> Any:
    return json.loads((out / "summary.json").read_text(), parse_constant=pytest.fail)


# ------------------------------------------------------------------ what comes out


def test_the_four_files(fasta: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["genome", str(fasta({"chr1 some words": GENOME})), "--out", str(out)]) == 0
    assert sorted(path.name for path in out.iterdir()) == sorted(FILES)
    header, *lines = bed(out)
    assert header[0] == "#chrom" and lines == [["chr1", *LINE]]
    bits = bedgraph(out)
    expected = analysis(GENOME).echo.bits
    assert [bits["chr1", i] for i in range(len(GENOME))] == pytest.approx(expected.tolist(), abs=6e-4)
    assert (out / "map.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    shown = capsys.readouterr()
    assert "background 2N(1/4 + 3/4 e^-b)^w" in " ".join(shown.err.split())
    assert "attention 100 %" in shown.err
    for text in ("100", "180", "300", "380", "inside repeats", *(str(out / name) for name in FILES)):
        assert text in shown.out


def test_summary(fasta: Write, tmp_path: Path) -> None:
    path = fasta({"chr1": GENOME.lower() + "NN"})
    assert main(["genome", str(path), "--out", str(tmp_path), "--ranks", "2"]) == 0
    content = summary(tmp_path)
    assert content["arguments"] == {
        "fasta": str(path), "ranks": 2, "out": str(tmp_path), "record": None, "region": None,
        "context": None, "sharpness": None, "force": False,
    }  # fmt: skip
    assert content["ranks"] == {"number": 2, "transport": "threads"}
    assert content["versions"]["numpy"] == np.__version__
    assert {"reading", "estimating", "attention_expected", "attention", "repeats"} <= content[
        "seconds"
    ].keys()
    (record,) = content["records"]
    assert record["bases"] == 382 and record["ambiguous_bases"] == 2
    assert (record["context"], record["sharpness"], record["prior_mass"]) == (16, 3, 0.01)
    assert record["background"] == settings.background(382, 16, 3.0) < 0.01
    assert record["bases_in_repeats"] == 160
    assert record["mean_bits_inside_repeats"] < 0.5 < 1.8 < record["mean_bits_outside_repeats"]
    assert record["longest_repeats"] == [
        {"start": 100, "end": 180, "partner_start": 300, "partner_end": 380, "strand": "-", "bases": 80}
    ]


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_repeats_do_not_depend_on_the_number_of_ranks(fasta: Write, tmp_path: Path, ranks: int) -> None:
    text = GENOME + BEFORE[20:60] + "N" + PIECE[:50] + GENOME[90:150]
    path = str(fasta({"chr1": text}))
    for count, out in ((1, "one"), (ranks, "many")):
        assert main(["genome", path, "--out", str(tmp_path / out), "--ranks", str(count)]) == 0
    assert len(bed(tmp_path / "one")) > 4
    assert (tmp_path / "one" / "repeats.bed").read_bytes() == (tmp_path / "many" / "repeats.bed").read_bytes()


VARIANTS: Mapping[str, Callable[[bytes], bytes]] = {
    "lower case": lambda content: content.lower(),
    "Windows": lambda content: content.replace(b"\n", b"\r\n"),
    "gzip": gzip.compress,
    "RNA": lambda content: content.replace(b"T", b"U"),
    "no last line end": lambda content: content.rstrip(b"\n"),
    "blank lines": lambda content: content.replace(b"\n", b"\n\n"),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_same_genome_written_otherwise(fasta: Write, tmp_path: Path, variant: str) -> None:
    path = fasta({"x": GENOME})
    path.write_bytes(VARIANTS[variant](path.read_bytes()))
    assert main(["genome", str(path), "--out", str(tmp_path / "out")]) == 0
    assert bed(tmp_path / "out")[1:] == [["x", *LINE]]
    assert len(bedgraph(tmp_path / "out")) == len(GENOME)


def test_ambiguous_bases_have_no_bits_and_end_repeats(fasta: Write, tmp_path: Path) -> None:
    text = GENOME[:140] + "R" + GENOME[141:]
    assert main(["genome", str(fasta({"x": text})), "--out", str(tmp_path)]) == 0
    assert [line[1:5] for line in bed(tmp_path)[1:]] == [
        ["100", "140", "340", "380"], ["141", "180", "300", "339"]
    ]  # fmt: skip
    assert set(range(380)) - {place for _, place in bedgraph(tmp_path)} == {140}


def test_each_record_is_a_genome_of_its_own(fasta: Write, tmp_path: Path) -> None:
    path = str(fasta({"a": GENOME, "b": GENOME + "G" + BEFORE, "c": "ACGT"}))
    assert main(["genome", path, "--out", str(tmp_path)]) == 0
    assert [line[0] for line in bed(tmp_path)[1:]] == ["a", "b", "b"]  # and none between a and b
    assert [record["name"] for record in summary(tmp_path)["records"]] == ["a", "b", "c"]
    assert main(["genome", path, "--out", str(tmp_path), "--record", "c", "--record", "a"]) == 0
    assert [record["name"] for record in summary(tmp_path)["records"]] == ["a", "c"]


def test_a_region_is_reported_in_the_records_coordinates(fasta: Write, tmp_path: Path) -> None:
    path = str(fasta({"a": "ACGT", "b": GENOME}))
    assert main(["genome", path, "--out", str(tmp_path), "--region", "b:121-370"]) == 0
    assert bed(tmp_path)[1:] == [["b", "120", "180", "300", "360", "-", "1.000", "60", "inverted"]]
    bits = bedgraph(tmp_path)
    assert {name for name, _ in bits} == {"b"}
    assert sorted(place for _, place in bits) == list(range(120, 370))
    (record,) = summary(tmp_path)["records"]
    assert (record["start"], record["end"], record["bases"]) == (120, 370, 250)
    longest = record["longest_repeats"][0]
    assert (longest["start"], longest["partner_end"]) == (120, 360)


@pytest.mark.parametrize("text", ["A", "ACGTAC", "N" * 30, "ACGT" * 3 + "N" * 8])
def test_a_tiny_genome_is_no_error(fasta: Write, tmp_path: Path, text: str) -> None:
    assert main(["genome", str(fasta({"x": text})), "--out", str(tmp_path)]) == 0
    assert bed(tmp_path)[1:] == []
    assert len(bedgraph(tmp_path)) == len(text) - text.count("N")


def test_context_and_sharpness_can_be_chosen(fasta: Write, tmp_path: Path) -> None:
    path = str(fasta({"x": GENOME}))
    assert main(["genome", path, "--out", str(tmp_path), "--context", "60", "--sharpness", "4"]) == 0
    (record,) = summary(tmp_path)["records"]
    assert (record["context"], record["sharpness"], record["repeats"]) == (60, 4, 1)
    assert main(["genome", path, "--out", str(tmp_path), "--context", "81"]) == 0
    assert summary(tmp_path)["records"][0]["repeats"] == 0


def test_a_name_is_taken_literally_everywhere(
    fasta: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "[/red]:x:$a_$[b]%é"
    for text in (GENOME, BEFORE):
        assert main(["genome", str(fasta({name: text})), "--out", str(tmp_path)]) == 0
        shown = capsys.readouterr()
        assert name in shown.err and name in shown.out
    assert summary(tmp_path)["records"][0]["name"] == name
    assert {bit_name for bit_name, _ in bedgraph(tmp_path)} == {name}


HOSTILE = "x\x1b[31mred\x07\x9b\u202e\x7f"


def test_a_name_cannot_command_the_terminal(
    fasta: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = r"x\x1b[31mred\x07\x9b\u202e\x7f"
    path = str(fasta({HOSTILE: GENOME, "other": BEFORE}))
    assert main(["genome", path, "--out", str(tmp_path), "--record", plain]) == 0
    assert main(["genome", path, "--out", str(tmp_path), "--region", "nobody:1-9"]) == 2
    assert main(["genome", HOSTILE, "--out", HOSTILE]) == 2
    shown = capsys.readouterr()
    assert plain in shown.out and plain in shown.err
    assert all(c.isprintable() or c == "\n" for c in shown.out + shown.err)
    assert {line[0] for line in bed(tmp_path)[1:]} == {name for name, _ in bedgraph(tmp_path)} == {plain}
    assert summary(tmp_path)["records"][0]["name"] == plain


@pytest.mark.filterwarnings("error::UserWarning")
def test_a_name_in_letters_that_no_font_has(fasta: Write, tmp_path: Path) -> None:
    name = "基因组🧬" + "é" * 200
    assert main(["genome", str(fasta({name: GENOME})), "--out", str(tmp_path)]) == 0
    assert bed(tmp_path)[1:] == [[name, *LINE]]


def test_a_second_run_replaces_the_files_of_the_first(fasta: Write, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep")
    for text in (GENOME, BEFORE):
        assert main(["genome", str(fasta({"x": text})), "--out", str(tmp_path)]) == 0
    assert bed(tmp_path)[1:] == []
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*FILES, "mine.txt", "genome.fa"])


def test_the_input_is_not_written_to(fasta: Write, tmp_path: Path) -> None:
    path = fasta({"x": GENOME})
    path.chmod(0o444)
    before = path.read_bytes()
    assert main(["genome", str(path), "--out", str(tmp_path / "out")]) == 0
    assert path.read_bytes() == before


# ------------------------------------------------------------------ bad input


def truncated(path: Path) -> None:
    path.write_bytes(gzip.compress(random_bases(9999, seed=1).encode())[:900])


def corrupt(path: Path) -> None:
    content = bytearray(gzip.compress(b">x\n" + random_bases(9999, seed=1).encode()))
    content[200:260] = bytes(60)
    path.write_bytes(content)


BAD_FILES: Mapping[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda path: None, "does not exist. Check the path."),
    "directory": (lambda path: path.mkdir(), "is a directory. Name a FASTA file in it."),
    "below a file": (lambda path: path.write_text(">x\nACGT\n"), "does not exist"),
    "empty file": (lambda path: path.write_text(""), "holds no record. Give a FASTA file"),
    "blank lines": (lambda path: path.write_text("\n\n"), "holds no record"),
    "plain text": (
        lambda path: path.write_text("\nhello\n"),
        "must begin with '>', which is missing in line 2",
    ),
    "FASTQ": (lambda path: path.write_text("@x\nACGT\n+\nIIII\n"), "must begin with '>'"),
    "binary": (lambda path: path.write_bytes(bytes(range(256))), "it is not text"),
    "truncated gzip": (truncated, "is a broken or truncated gzip file"),
    "corrupt gzip": (corrupt, "is a broken or truncated gzip file"),
    "magic bytes only": (lambda path: path.write_bytes(b"\x1f\x8b"), "is a broken or truncated gzip file"),
    "empty record": (lambda path: path.write_text(">a\nAC\n>x\n>b\nAC\n"), "record 'x' is empty. Remove it"),
    "one name twice": (
        lambda path: path.write_text(">x\nAC\n>x 2\nGT\n"),
        "holds two records named 'x'. Rename",
    ),
    "protein": (
        lambda path: path.write_text(">x\nMKLEFI\n"),
        "record 'x' holds letters that are no nucleotides: 'E',",
    ),
    "gaps": (lambda path: path.write_text(">x\nACGT\nAC-T\n"), "'-', first at base 7. Give DNA or RNA"),
}


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run the command, which must refuse with one line on standard error, and return that line."""
    assert main(["genome", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    lines = shown.err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("ringcore: ") and "Traceback" not in lines[0]
    return lines[0]


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_one_line_and_code_2(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make, message = BAD_FILES[name]
    path, out = tmp_path / "genome.fa", tmp_path / "out"
    make(path)
    assert message in refused(capsys, str(path / "x" if name == "below a file" else path), "--out", str(out))
    assert not out.exists()


BAD_ARGUMENTS: Mapping[str, tuple[list[str], str]] = {
    "no rank": (["--ranks", "0"], f"--ranks must be from 1 to {command.MOST_RANKS} on this machine. Got 0."),
    "fewer than none": (["--ranks", "-3"], "Got -3."),
    "too many ranks": (["--ranks", "100000"], "Got 100000. Leave it out: one rank uses all cores already."),
    "256 ranks, where there are few cores": (
        ["--ranks", str(max(256, 4 * (os.cpu_count() or 1)) + 1)],
        "Leave it out",
    ),
    "half a rank": (["--ranks", "1.5"], "'--ranks'"),
    "unknown option": (["--rank", "2"], "--rank"),
    "unknown record": (["--record", "y"], "--record must name a record of the file. Got 'y'. There is: x."),
    "region outside": (
        ["--region", "x:5-381"],
        "which has 380 bases. Got 'x:5-381'. Choose an END of at most 380.",
    ),
    "region of another": (["--region", "y:1-5"], "Got 'y'. There is: x."),
    "region from 0": (["--region", "0-5"], "bases count from 1"),
    "region backwards": (["--region", "9-5"], "1 <= START <= END"),
    "no region": (["--region", "x"], "--region must be NAME:START-END or START-END. Got 'x'."),
    "context": (["--context", "0"], "--context must be from 1 to 256 bases. Got 0."),
    "sharpness": (["--sharpness", "-1"], "--sharpness must be from 0.5 to 20. Got -1."),
    "out is a file": (["--out", "FASTA"], "cannot be written to: File exists. Choose a folder"),
    "out below a file": (["--out", "FASTA/x"], "cannot be written to"),
    "out where nobody writes": (["--out", "/proc/x"], "cannot be written to"),
    "out holds a folder": (["--out", "taken"], "holds map.png, which is no file"),
}


@pytest.mark.parametrize("name", BAD_ARGUMENTS)
def test_a_bad_argument_is_one_line_and_code_2(
    name: str,
    fasta: Write,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken" / "map.png").mkdir(parents=True)
    path = fasta({"x": GENOME})
    before = sorted(tmp_path.rglob("*"))
    arguments, message = BAD_ARGUMENTS[name]
    arguments = [argument.replace("FASTA", str(path)) for argument in arguments]
    assert message in refused(capsys, str(path), *arguments)
    assert sorted(tmp_path.rglob("*")) == before


def test_more_than_a_day_needs_force(
    fasta: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimate, "scores_per_second", lambda bases, asked: 2 * 381**2 / (30 * 3600))
    monkeypatch.setattr(lead, "overhead", lambda ranks, asked: 0.0)
    arguments = ["genome", str(fasta({"x": GENOME})), "--out", str(tmp_path / "out")]
    assert main(arguments) == 2
    *_, last = capsys.readouterr().err.splitlines()
    assert "would take about 30 h 0 min on this machine, and more than 24 h needs --force." in last
    assert not (tmp_path / "out").exists()
    assert main([*arguments, "--force"]) == 0


@pytest.mark.parametrize("ranks", [1, 4])
def test_more_memory_than_is_free_needs_force(
    fasta: Write,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    ranks: int,
) -> None:
    room = memory.needed(380, settings.choose(380), range(ranks), ranks)
    arguments = ["genome", str(fasta({"x": GENOME})), "--out", str(tmp_path / "out"), "--ranks", str(ranks)]
    monkeypatch.setattr(memory, "free", lambda: room - 1)
    assert main(arguments) == 2
    assert "would take about 1 MB of memory, of which 1 MB are free" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert main([*arguments, "--force"]) == 0
    for enough in (room, None):
        monkeypatch.setattr(memory, "free", lambda enough=enough: enough)
        assert main(arguments) == 0
    assert "about 1 MB of memory" in capsys.readouterr().err


# ------------------------------------------------------------------ failures in the middle


def test_a_failing_write_leaves_nothing(
    fasta: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: bytes) -> None:
        path.write_bytes(content[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "_write", full)
    assert main(["genome", str(fasta({"x": GENOME})), "--out", str(tmp_path / "out")]) == 2
    assert "cannot be written to: No space left on device" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_too_little_memory_is_told(
    fasta: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_much(*_: object) -> None:
        raise MemoryError("Unable to allocate 1 TiB")

    monkeypatch.setattr(lead, "analyse", too_much)
    assert main(["genome", str(fasta({"x": GENOME})), "--out", str(tmp_path / "out")]) == 2
    assert "not enough memory: Unable to allocate 1 TiB. Choose a --region" in capsys.readouterr().err


def test_a_defect_keeps_its_traceback_and_leaves_nothing(
    fasta: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(encode, "index_bits", broken)
    with pytest.raises(ZeroDivisionError, match="a defect"):
        main(["genome", str(fasta({"x": GENOME})), "--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_killed_in_the_middle_it_ends_at_once_and_leaves_no_file(
    fasta: Write, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    path, out = fasta({"x": random_bases(200_000, seed=1)}), tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, "-m", "ringcore", "genome", str(path), "--out", str(out)],
        stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:  # until the attention runs
        if "query-key pairs" in line:
            break
    time.sleep(0.5)
    assert process.poll() is None and out.is_dir()
    begin = time.monotonic()
    process.send_signal(number)
    rest = process.stderr.read()
    assert process.wait(20) == code
    assert time.monotonic() - begin < 10
    assert not out.exists() if code > 0 else list(out.iterdir()) == []
    assert "Traceback" not in rest
    assert (f"stopped by {number.name}. Nothing was written." in rest) == (code > 0)


def test_stopped_when_the_files_are_there_it_says_so(
    fasta: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def exit_now(code: int) -> None:
        raise SystemExit(code)

    def report(*_: object) -> None:
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(os, "_exit", exit_now)
    monkeypatch.setattr(lead.screen, "report", report)
    with pytest.raises(SystemExit, match="143"):
        main(["genome", str(fasta({"x": GENOME})), "--out", str(tmp_path / "out")])
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"ringcore: stopped by SIGTERM. All four files are in {tmp_path / 'out'}, complete."
    )
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(FILES)


@pytest.mark.parametrize("at", range(len(FILES)))
def test_stopped_between_two_files_all_are_there_and_it_says_so(
    fasta: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], at: int
) -> None:
    replace, calls = Path.replace, []

    def exit_now(code: int) -> None:
        raise SystemExit(code)

    def note(source: Path, target: Path) -> Path:
        if len(calls) == at:
            signal.raise_signal(signal.SIGINT)
        calls.append(target.name)
        return replace(source, target)

    monkeypatch.setattr(os, "_exit", exit_now)
    monkeypatch.setattr(Path, "replace", note)
    with pytest.raises(SystemExit, match="130"):
        main(["genome", str(fasta({"x": GENOME})), "--out", str(tmp_path / "out")])
    assert "stopped by SIGINT. All four files are in" in capsys.readouterr().err
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(FILES)


# ------------------------------------------------------------------ around the command


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("ringcore ")


def test_help_names_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "genome" in capsys.readouterr().out
    assert main(["genome", "--help"]) == 0
    assert "--ranks" in capsys.readouterr().out


def test_no_arguments_show_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "genome" in "".join(capsys.readouterr())


def test_an_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["genom"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("'genome'? See ringcore --help.")


@pytest.mark.parametrize("missing", cli.NEEDED)
def test_without_the_extra_one_line_says_what_to_install(
    missing: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    find_spec = cli.importlib.util.find_spec
    monkeypatch.setattr(
        cli.importlib.util, "find_spec", lambda name: None if name == missing else find_spec(name)
    )
    assert main(["--version"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert missing in line and "pip install 'ringcore[cli]'" in line


def test_python_m_ringcore() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "ringcore", "--version"], capture_output=True, text=True, timeout=60,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}, check=True,
    )  # fmt: skip
    assert result.stdout.startswith("ringcore ")
