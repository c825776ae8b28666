"""Tests whose ranks are processes: ``mpirun -n 3 python -m pytest tests/mpi``; ``.ci/mpi`` runs 1 to 5.

Without a launcher they are not collected: on threads, `tests/properties`, `tests/contract` and `tests/cases`
test the same.
"""

from __future__ import annotations

from ringcore.launcher import launched

collect_ignore_glob = [] if launched() else ["test_*.py"]
