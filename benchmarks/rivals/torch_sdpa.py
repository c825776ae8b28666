"""torch's scaled_dot_product_attention on the CPU: the fused kernel, forward and by autograd."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from cases import CAUSAL, Array, Case, Inputs

from rivals.rival import Call, Rival, Unavailable

# Order in memory: as the documentation has it, or as a model has it whose heads come from one projection.
SETTINGS = ("BHSD", "BSHD")


def libraries(config: str) -> str:
    """What torch multiplies with."""
    lines = [line.removeprefix("  - ") for line in config.splitlines()]
    wanted = ("Intel(R) oneAPI Math Kernel", "Intel(R) MKL-DNN", "OpenBLAS", "CPU capability")
    return ", ".join(re.sub(r"-Product.*| \(Git.*", "", line) for line in lines if line.startswith(wanted))


def prepare(cores: int, case: Case, arrays: Inputs, setting: Any) -> Call:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    torch.set_num_threads(cores)
    tensors = [torch.from_numpy(x)[None] for x in arrays]
    if setting == "BSHD":
        tensors = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in tensors]
    *qkv, dout = tensors

    def attention(q: Any, k: Any, v: Any) -> Any:
        # The fused kernel or an error, rather than the plain one in silence.
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return scaled_dot_product_attention(q, k, v, is_causal=case.mask == CAUSAL)

    def forward() -> Any:
        with torch.inference_mode():
            return (attention(*qkv),)

    def both() -> Any:
        leaves = [x.detach().requires_grad_() for x in qkv]
        out = attention(*leaves)
        return (out, *torch.autograd.grad(out, leaves, dout))

    def to_numpy(results: Any) -> tuple[Array, ...]:
        return tuple(x.detach()[0].numpy() for x in results)

    return Call(both if case.backward else forward, to_numpy)


def rival(cores: int) -> Rival:
    try:
        import torch
    except ImportError as error:
        raise Unavailable(f"torch cannot be imported: {error}") from None
    how = (
        "scaled_dot_product_attention, its fused CPU kernel, inference_mode or autograd; "
        f"{cores} threads; {libraries(torch.__config__.show())}"
    )
    return Rival("torch SDPA", torch.__version__, how, partial(prepare, cores), SETTINGS)
