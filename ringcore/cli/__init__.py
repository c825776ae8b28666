"""The command line: ``ringcore ...`` and ``python -m ringcore ...``.

Only `main` lives here, so that a missing extra can be told in one line before anything needs it.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Sequence

from ringcore.cli.printable import printable
from ringcore.cli.stop import Stopped, stoppable
from ringcore.cli.streams import BROKEN_PIPE, sturdy
from ringcore.cli.world import first_speaks, give_way, is_alone, is_first, leave

__all__ = ["main"]

NEEDED = ("typer", "rich", "matplotlib", "dnaio")
"""Import names of what the extra ``cli`` installs."""


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line; the console entry point.

    Parameters
    ----------
    args : sequence of str, optional
        The arguments after the program's name; those of this process by default.

    Returns
    -------
    int
        Exit code: 0 done; 1 done, but standard output could not be written to (say, /dev/full), or `doctor`
        or `verify` has found something wrong; 2 the input
        is at fault (one line on standard error says what and the cure); 130 interrupted; 141 done, but
        nobody read standard output to its end; 143 terminated. A standard error that is lost changes nothing.

    Notes
    -----
    Under mpirun all ranks make the call, and rank 0 speaks for all.

    Examples
    --------
    >>> main(["--version"])
    ringcore ...
    0
    """
    with sturdy() as (out, _):
        try:
            with first_speaks(), stoppable():
                code = _run(sys.argv[1:] if args is None else list(args))
        except Stopped as stopped:
            if stopped.aloud or is_first():
                print(printable(" ".join(f"ringcore: {stopped}. {stopped.outcome}".split())), file=sys.stderr)
            leave(stopped.exit_code)
        except Exception:
            if is_alone():
                raise
            traceback.print_exc()
            leave(1)
        out.flush()
        if code:
            give_way()
        if code or out.error is None:
            return code
        if isinstance(out.error, BrokenPipeError):  # `| head`: its user knows
            return BROKEN_PIPE
        why = out.error.strerror or out.error
        print(
            f"ringcore: standard output cannot be written to: {why}. Files are not affected.", file=sys.stderr
        )
        return 1


def _run(args: list[str]) -> int:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        cure = "pip install 'ringcore[cli]'"
        print(f"ringcore: the command line needs {', '.join(missing)}. Run: {cure}", file=sys.stderr)
        return 2
    from ringcore.cli.app import run

    return run(args)
