"""Kernels compiled by numba, with the matrix products of SciPy's BLAS: the extra ``fast``.

A block of queries with all its keys is one call that takes no lock, so that a pool of threads keeps all
cores at it.
"""

from ringcore_numpy.compiled.attend import attend, attend_backward, can_do
from ringcore_numpy.compiled.hidden import Hidden

__all__ = ["Hidden", "attend", "attend_backward", "can_do"]
