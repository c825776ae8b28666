"""Which MPI a library or a launcher belongs to, and which of them understand each other."""

from __future__ import annotations

from ringcore.launcher import LAUNCHERS, Launch

VENDORS = (  # part of the text, name, family; the first that fits
    ("open mpi", "Open MPI", "Open MPI"),
    ("open-mpi", "Open MPI", "Open MPI"),
    ("openrte", "Open MPI", "Open MPI"),
    ("prrte", "Open MPI", "Open MPI"),
    ("spectrum", "IBM Spectrum MPI", "Open MPI"),
    ("fujitsu", "Fujitsu MPI", "Open MPI"),
    ("intel", "Intel MPI", "MPICH"),
    ("mvapich", "MVAPICH", "MPICH"),
    ("cray", "Cray MPICH", "MPICH"),
    ("mpich", "MPICH", "MPICH"),
    ("hydra", "MPICH", "MPICH"),
    ("slurm", "Slurm", "any"),
)
"""A family's libraries and launchers work together; 'any' works with every library that was built for it."""

FAMILY_OF_VARIABLE = {
    "OMPI_COMM_WORLD_RANK": "Open MPI",
    "PMI_RANK": "MPICH",
    "MV2_COMM_WORLD_RANK": "MPICH",
}
"""By the variable that names the rank; the launchers of batch systems serve both families."""


def vendor(text: str) -> tuple[str, str]:
    """Name and family, from `MPI.Get_library_version()` or ``mpirun --version``; 'unknown' for both.

    Examples
    --------
    >>> vendor("Intel(R) MPI Library 2021.18 for Linux* OS")
    ('Intel MPI', 'MPICH')
    >>> vendor("mpirun (Open MPI) 5.0.11")
    ('Open MPI', 'Open MPI')
    """
    text = text.lower()
    return next(((name, family) for part, name, family in VENDORS if part in text), ("unknown", "unknown"))


def family_of(launch: Launch) -> str:
    """The family of libraries that a launcher belongs to, 'any' for that of a batch system."""
    variable = next((x.rank for x in LAUNCHERS if x.name == launch.launcher), "")
    return FAMILY_OF_VARIABLE.get(variable, "any")


def strangers(one: str, other: str) -> bool:
    """Whether two families are known, and not the same."""
    return "unknown" not in (one, other) and "any" not in (one, other) and one != other
