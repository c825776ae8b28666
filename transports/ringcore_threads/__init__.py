"""Ranks as threads of one process: nothing to install, nothing to launch."""

from ringcore_threads.run import run_ranks
from ringcore_threads.transport import ThreadExchange, ThreadTransport, solo, thread_group

__all__ = ["ThreadExchange", "ThreadTransport", "run_ranks", "solo", "thread_group"]
