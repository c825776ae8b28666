"""The PyPI package `ring-attention-pytorch` over gloo on two processes.

Contiguous shards: its causal mask saves no work in either of its layouts, and striping masks every bucket
where contiguous shards mask the diagonal ones alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from cases import CAUSAL, Case, Inputs

from rivals.rival import Call, Rival, Unavailable
from rivals.team import Team

RANKS = 2
SETTINGS = (1024, 256, 512)  # bucket_size


def launch(command: list[str], folder: str) -> list[list[str]]:
    """A process for each rank; they meet at a file."""
    meeting = f"BENCH_MEETING={folder}/meeting"
    return [["env", f"BENCH_RANK={rank}", meeting, *command] for rank in range(RANKS)]


def rank() -> tuple[int, Callable[..., Any]]:
    """In each process."""
    import torch
    import torch.distributed as dist
    from environment import cores

    number = int(os.environ["BENCH_RANK"])
    torch.set_num_threads(max(1, cores() // RANKS))
    dist.init_process_group(
        "gloo", init_method=f"file://{os.environ['BENCH_MEETING']}", rank=number, world_size=RANKS
    )
    return number, partial(prepare_rank, number, load())


def load() -> Any:
    """The function, with its backward made right.

    Its last step sends dk and dv home by ``dk, dv = ring_pass(...)``, but `ring_pass` returns two buffers,
    what came and what was sent: autograd then sums dk and dv into one. Here it returns what came.
    """
    from ring_attention_pytorch import ring_flash_attention as module

    passing = module.ring_pass
    module.ring_pass = lambda *arguments: passing(*arguments)[0]
    return module.ring_flash_attn


def prepare_rank(number: int, ring_flash_attn: Any, case: Case, arrays: Inputs, setting: Any) -> Any:
    import torch

    local = case.length // RANKS
    mine = slice(number * local, (number + 1) * local)
    *qkv, dout = (torch.from_numpy(x[:, mine].swapaxes(0, 1)[None].copy()) for x in arrays)
    options = {"causal": case.mask == CAUSAL, "bucket_size": setting, "ring_reduce_col": True}

    def forward() -> Any:
        with torch.inference_mode():
            return (ring_flash_attn(*qkv, **options),)

    def both() -> Any:
        leaves = [x.detach().requires_grad_() for x in qkv]
        out = ring_flash_attn(*leaves, **options)
        return (out, *torch.autograd.grad(out, leaves, dout))

    def shards(results: Any) -> Any:
        return tuple(x.detach()[0].numpy().swapaxes(0, 1) for x in results)

    return (both if case.backward else forward), shards


def prepare(team: Team, case: Case, arrays: Inputs, setting: Any) -> Call:
    local, odd = divmod(case.length, RANKS)
    if odd or local % min(local, setting):
        raise Unavailable(f"{case.length} tokens on {RANKS} processes are no multiple of {setting}")
    return team.call(case, arrays, setting, partial(np.concatenate, axis=1))


def rival(cores: int) -> Rival:
    try:
        number = version("ring-attention-pytorch")
    except PackageNotFoundError as error:
        raise Unavailable(f"ring-attention-pytorch is not installed: {error}") from None
    if cores < RANKS or os.name != "posix":
        raise Unavailable(f"must have {RANKS} cores. Got {cores}")
    team = Team("ring_attention_gloo", RANKS, launch)
    how = (
        f"ring_flash_attn, ring_reduce_col, gloo, {RANKS} processes, {cores // RANKS} thread(s) each; "
        "its backward, which returns dk + dv for dk, is made right by one line"
    )
    return Rival(
        "ring-attention-pytorch",
        number,
        how,
        partial(prepare, team),
        SETTINGS,
        long=False,
        close=team.close,
    )
