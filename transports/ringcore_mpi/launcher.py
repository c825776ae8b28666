"""Moved to `ringcore.launcher`."""

from ringcore.launcher import LAUNCHERS, Launch, Launcher, launched

__all__ = ["LAUNCHERS", "Launch", "Launcher", "launched"]
