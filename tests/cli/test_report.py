"""Shapes of the outputs that a whole run does not show: pictures, lines, durations."""

from __future__ import annotations

import gzip
import io
import threading
import time

import matplotlib.image
import numpy as np
import pytest
from rich.console import Console

import ringcore as rc
from ringcore.cli.genome import plot, report
from ringcore.cli.genome.analysis import Analysis
from ringcore.cli.genome.attend import Echo
from ringcore.cli.genome.fasta import Record
from ringcore.cli.genome.progress import watched
from ringcore.cli.genome.repeats import Repeats
from ringcore.cli.genome.settings import choose


def made(bits: list[float], rows: list[tuple[int, int, int, int, bool]], offset: int = 0) -> Analysis:
    """An analysis with these bits and repeats, without any attention."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * 5
    places = [np.array(column, np.int64) for column in columns[:4]]
    found = Repeats(*places, np.array(columns[4], bool), np.ones(len(rows)))
    n = len(bits)
    echo = Echo(np.array(bits, np.float32), np.zeros(n + 1, np.float32), np.full(n + 1, -1))
    return Analysis(Record("chr", np.zeros(n, np.uint8), offset), choose(n), echo, found, 1.0, 0.1)


def test_neighbours_that_agree_share_a_line_and_ambiguous_bases_have_none() -> None:
    analysis = made([2, 2, 2.0004, float("nan"), 2, 0.0123, float("nan")], [], offset=1000)
    lines = gzip.decompress(report.bedgraph_gz([analysis])).decode().splitlines()[1:]
    assert lines == ["chr\t1000\t1003\t2.000", "chr\t1004\t1005\t2.000", "chr\t1005\t1006\t0.012"]


def test_the_same_results_are_the_same_bytes() -> None:
    first = report.bedgraph_gz([made([1, 2], [])])
    time.sleep(1.1)  # gzip writes seconds
    assert report.bedgraph_gz([made([1, 2], [])]) == first


def test_kinds_of_repeats() -> None:
    analysis = made(
        [2.0] * 99, [(0, 20, 40, 60, False), (0, 20, 60, 80, True), (20, 40, 20, 40, True)], offset=7
    )
    lines = report.repeats_bed([analysis]).decode().splitlines()[1:]
    assert lines == [
        "chr\t7\t27\t47\t67\t+\t1.000\t20\trepeat",
        "chr\t7\t27\t67\t87\t-\t1.000\t20\tinverted",
        "chr\t27\t47\t27\t47\t-\t1.000\t20\tpalindrome",
    ]


def test_smoothing_is_the_mean_of_equal_stretches() -> None:
    bits = np.array([0, 1, 2, 3, np.nan, 5, np.nan, np.nan, 8], np.float32)
    middles, means = plot.smoothed(bits, windows=5)
    assert middles.tolist() == [1, 3, 5, 7, 8.5]
    np.testing.assert_array_equal(means, [0.5, 2.5, 5, np.nan, 8])


def colours(png: bytes) -> set[tuple[int, ...]]:
    pixels = matplotlib.image.imread(io.BytesIO(png), format="png")[:, :, :3]
    return {tuple(colour) for colour in np.unique(np.rint(255 * pixels).astype(int).reshape(-1, 3), axis=0)}


def rgb(colour: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(colour[1:]))


def test_each_kind_of_repeat_is_drawn_in_its_own_colour() -> None:
    kinds = {
        plot.SAME: (100, 200, 500, 600, False),
        plot.REVERSE: (100, 200, 700, 800, True),
        plot.PALINDROME: (300, 340, 300, 340, True),
    }
    # The legend shows all colours, so the number of pixels tells.
    for colour, row in kinds.items():
        with_it, without = (count(plot.picture([made([2.0] * 1000, rows)]), colour) for rows in ([row], []))
        assert with_it > without + 50


def count(png: bytes, colour: str) -> int:
    pixels = np.rint(255 * matplotlib.image.imread(io.BytesIO(png), format="png")[:, :, :3])
    return int((pixels == rgb(colour)).all(axis=2).sum())


def test_a_reverse_repeat_falls_and_a_forward_one_rises() -> None:
    analysis = made([2.0] * 100, [(10, 30, 50, 70, False), (0, 20, 60, 90, True)], offset=5)
    segments = plot._segments(analysis, np.array([0, 1]))
    assert segments.tolist() == [
        [[15, 55], [35, 75]],
        [[5, 95], [25, 65]],
        [[55, 15], [75, 35]],
        [[95, 5], [65, 25]],
    ]


@pytest.mark.parametrize("records", [1, 2, 5, 12])
def test_a_picture_of_any_number_of_records(records: int) -> None:
    analyses = [made([float("nan")] * (i + 1), []) for i in range(records)]
    height, width, _ = matplotlib.image.imread(io.BytesIO(plot.picture(analyses)), format="png").shape
    assert 600 < height < 5000 and 600 < width < 5000


def test_progress_tells_every_tenth_where_there_is_no_terminal() -> None:
    meter, file = rc.Meter(), io.StringIO()
    with watched(meter, 100, Console(file=file)):
        for _ in range(4):
            meter.add(tiles=1, scores=25, flops=0)
            time.sleep(0.3)
    lines = file.getvalue().splitlines()
    assert lines[-1] == "attention 100 %"
    assert len(lines) >= 3 and all("left" in line for line in lines[:-1])


def test_progress_shows_a_bar_on_a_terminal() -> None:
    file = io.StringIO()
    with watched(rc.Meter(), 100, Console(file=file, force_terminal=True, width=100)):
        pass
    assert "100%" in file.getvalue()


def test_progress_ends_with_an_error_and_does_not_claim_that_all_is_done() -> None:
    file, before = io.StringIO(), threading.active_count()
    with pytest.raises(KeyError, match="lost"), watched(rc.Meter(), 100, Console(file=file)):
        raise KeyError("lost")
    assert "100 %" not in file.getvalue() and threading.active_count() == before
