"""Genomes to test with, and the analysis of one without the command line around it."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

import ringcore as rc
from ringcore.cli.genome import settings
from ringcore.cli.genome.analysis import Analysis, analyse
from ringcore.cli.genome.fasta import RawRecord, Record, to_codes
from ringcore.cli.genome.ranks import ThreadRanks
from tests.cli.kmers import Match, reverse_complement

CHLOROPLAST = Path(__file__).parents[2] / "examples" / "data" / "NC_000932.fa.gz"


def random_bases(length: int, seed: int) -> str:
    return "".join(np.random.default_rng(seed).choice(list("ACGT"), length))


def chloroplast() -> str:
    with gzip.open(CHLOROPLAST, "rt") as file:
        return "".join(line.strip() for line in file if not line.startswith(">"))


def analysis(text: str, *, ranks: int = 1, context: int | None = None) -> Analysis:
    codes = to_codes(RawRecord("test", text))
    asked = settings.choose(codes.size, context)
    return analyse(Record("test", codes), asked, ThreadRanks(ranks), rc.Meter())


def found(text: str, *, ranks: int = 1, context: int | None = None) -> set[Match]:
    return {Match(*row) for row in analysis(text, ranks=ranks, context=context).repeats.rows()}


@st.composite
def genomes(draw: st.DrawFn) -> str:
    """Random bases with stretches copied forward, reversed, in tandem, mutated, or made ambiguous."""
    text = random_bases(draw(st.integers(1, 120)), draw(st.integers(0, 2**32 - 1)))
    for _ in range(draw(st.integers(0, 5))):
        kind = draw(
            st.sampled_from(["copy", "inverted", "hairpin", "tandem", "mutated", "ambiguous", "fresh"])
        )
        start = draw(st.integers(0, max(0, len(text) - 1)))
        piece = text[start : start + draw(st.integers(1, 60))]
        if kind == "inverted":
            piece = reverse_complement(piece)
        elif kind == "hairpin":
            piece += reverse_complement(piece)
        elif kind == "tandem":
            piece *= draw(st.integers(2, 3))
        elif kind == "mutated":
            at = draw(st.integers(0, len(piece) - 1))
            piece = piece[:at] + draw(st.sampled_from("ACGT")) + piece[at + 1 :]
        elif kind == "ambiguous":
            piece = draw(st.sampled_from("NRYKMSWBDHV")) * draw(st.integers(1, 4)) + piece
        elif kind == "fresh":
            piece = random_bases(draw(st.integers(1, 80)), draw(st.integers(0, 2**32 - 1)))
        text += piece
    plain = sum(letter in "ACGT" for letter in text)
    assume(len(text) - text.count("N") <= 2 * plain)  # what is mostly ambiguous is taken for a protein
    return text
