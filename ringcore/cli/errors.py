"""The one exception that commands raise when what they were given cannot be used."""

from __future__ import annotations


class InputError(Exception):
    """What is wrong and the cure, in one line; the command ends with exit code 2."""
