"""The command line: ``ringcore ...`` and ``python -m ringcore ...``.

Only `main` lives here, so that a missing extra can be told in one line before anything needs it.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence

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
        Exit code: 0 done, 2 the input is at fault (one line on standard error says what and the cure),
        130 interrupted, 143 terminated.

    Examples
    --------
    >>> main(["--version"])
    ringcore ...
    0
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        cure = "pip install 'ringcore[cli]'"
        print(f"ringcore: the command line needs {', '.join(missing)}. Run: {cure}", file=sys.stderr)
        return 2
    from ringcore.cli.app import run
    from ringcore.cli.stop import Stopped

    try:
        return run(sys.argv[1:] if args is None else list(args))
    except Stopped as stopped:
        # Kernels may still be running in other threads; leaving the ordinary way would wait for them.
        print(f"ringcore: {stopped}. Nothing was written.", file=sys.stderr)
        sys.stderr.flush()
        os._exit(stopped.exit_code)
