"""The application that every command joins, and how its errors become one line and an exit code."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ringcore.cli.bench.command import bench
from ringcore.cli.doctor.command import doctor
from ringcore.cli.errors import InputError
from ringcore.cli.genome.command import genome
from ringcore.cli.printable import printable
from ringcore.cli.verify.command import verify
from ringcore.cli.version import installed_version

app = typer.Typer(
    name="ringcore",
    help="Exact attention over sequences that are spread over many processes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(genome)
app.command()(doctor)
app.command()(verify)
app.command()(bench)


def _print_version(wanted: bool) -> None:
    if wanted:
        print("ringcore", installed_version())
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Exact attention over sequences that are spread over many processes."""


def run(args: list[str]) -> int:
    """Run one command line and return its exit code.

    Wrong input is told in one line on standard error, exit code 2, whether a command found it
    (`InputError`) or the parser did. Other exceptions are defects and keep their traceback.
    """
    command = typer.main.get_command(app)
    try:
        code = command.main(args, prog_name="ringcore", standalone_mode=False)
    except InputError as error:
        return _refuse(str(error))
    except Exception as error:
        # The parser's exceptions come from click or from typer's own copy of it, depending on typer's
        # version; both can format themselves.
        if not hasattr(error, "format_message"):
            raise
        message = str(error.format_message())
        if not message:  # `ringcore` alone: typer has printed the help
            return 2
        asked = getattr(getattr(error, "ctx", None), "command_path", "ringcore")
        return _refuse(f"{message.rstrip('.')}{'' if message.endswith('?') else '.'} See {asked} --help.")
    return code if isinstance(code, int) else 0


def _refuse(message: str) -> int:
    print("ringcore: " + printable(" ".join(message.split())), file=sys.stderr)
    return 2
