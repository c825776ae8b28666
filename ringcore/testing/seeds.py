"""Settings of hypothesis under which all ranks draw the same examples."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, TypeVar

from ringcore.ring import Ring
from ringcore.testing.meeting import meet

T = TypeVar("T")


def lockstep_settings(ring: Ring, *, seed: int | None = None, **options: Any) -> Callable[[T], T]:
    """Settings under which all ranks draw the same examples; goes on top of ``@given``. Collective.

    The seed is rank 0's, printed there; no database, which ranks would read at different times; no
    deadline, no health check on slowness, no explain phase and no search for a second failure, which depend
    on each rank's clock.

    Parameters
    ----------
    ring : Ring
    seed : int, optional
        To repeat a run; drawn afresh by rank 0 if not given.
    **options
        Further hypothesis settings, such as ``max_examples``.

    Raises
    ------
    ModuleNotFoundError
        If hypothesis is not installed.
    """
    import hypothesis

    shared = int(meet(ring, "lockstep_settings", new_seed() if seed is None else seed)[0].note)
    if ring.rank == 0 and seed is None:
        print(  # noqa: T201 - a run that fails under mpirun is repeated with it
            f"hypothesis in lockstep on {ring.size} ranks: lockstep_settings(ring, seed={shared})"
        )
    chosen = in_lockstep(hypothesis.settings(**options))

    def decorate(test: T) -> T:
        seeded: T = hypothesis.seed(shared)(chosen(test))
        return seeded

    return decorate


def register_mpi_profile(name: str = "mpi", **options: Any) -> None:
    """Register a hypothesis profile for tests whose ranks are processes.

    It has the settings of `lockstep_settings` but for the seed. The pytest plug-in gives all of them, and a
    seed, to every property that takes the fixture ``ring`` under ``mpirun``; so such a profile is wanted
    where properties run without it, or with another number of examples under ``mpirun``.

    Parameters
    ----------
    name : str
        For ``hypothesis.settings.load_profile(name)`` or ``pytest --hypothesis-profile=name``.
    **options
        Further hypothesis settings, such as ``max_examples``.

    Examples
    --------
    >>> import hypothesis
    >>> register_mpi_profile(max_examples=30)
    >>> profile = hypothesis.settings.get_profile("mpi")
    >>> profile.max_examples, profile.database, profile.deadline
    (30, None, None)
    """
    import hypothesis

    hypothesis.settings.register_profile(name, in_lockstep(hypothesis.settings(**options)))


def in_lockstep(settings: Any) -> Any:
    """The settings, without what depends on a rank's clock or files."""
    import hypothesis

    skipped = (hypothesis.Phase.explain, hypothesis.Phase.reuse)
    return hypothesis.settings(
        settings,
        database=None,
        deadline=None,
        phases=[phase for phase in settings.phases if phase not in skipped],
        suppress_health_check=[*settings.suppress_health_check, hypothesis.HealthCheck.too_slow],
        report_multiple_bugs=False,
    )


def new_seed() -> int:
    """A seed, from the operating system's randomness."""
    return secrets.randbits(32)
