"""Two hosts on one machine: network namespaces joined by a link of a given rate. Linux, as root.

    python benchmarks/two_hosts.py --gbit 1 -- sh -c 'ip netns exec ringcore-1 ip address'

Each has its own interface ``link0`` and knows of no other way out; what runs there by `on` has a /dev/shm of
its own too. A token bucket (``tc``'s tbf) at both ends lets through so many bits per second. The hosts, and
all that runs on them, are gone when the command ends; after a SIGKILL, when the next run begins.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

HOSTS = ("ringcore-0", "ringcore-1")
LINK = "link0"
MTU = 9000
"""As in networks of 10 Gbit/s; fewer packets, less of the machine's time."""
_BURST_SECONDS = 0.001
_LEAST_BURST = 2**17  # the kernel hands packets of up to 64 KiB to the bucket, whatever the MTU
_UP_SECONDS = 10.0
_ENDING = (signal.SIGTERM, signal.SIGHUP)


class NoHosts(Exception):
    """Why there are none here."""


def run(*command: str) -> str:
    """What a command prints."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoHosts(f"{' '.join(command)}: {done.stderr.strip()}. Must be root, with CAP_NET_ADMIN.")
    return done.stdout


def on(host: str, *command: str) -> tuple[str, ...]:
    """The command that runs a command on a host, with a /dev/shm of its own, which goes with it."""
    alone = 'mount -t tmpfs shm /dev/shm && exec "$@"'
    return ("ip", "netns", "exec", host, "sh", "-c", alone, "sh", *command)


@contextmanager
def two_hosts(gbit: float | None) -> Iterator[tuple[str, str]]:
    """Make `HOSTS`, joined by a link of ``gbit`` Gbit/s each way; None: as fast as the kernel can.

    Raises
    ------
    NoHosts
        If the machine does not let us, or another run has them.
    """
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            raise NoHosts(f"{tool} must be installed (iproute2). Got no such program.")
    _remove(leftovers=True)
    try:
        for host in HOSTS:
            run("ip", "netns", "add", host)
        run("ip", "link", "add", LINK, "netns", HOSTS[0], "type", "veth", "peer", LINK, "netns", HOSTS[1])
        for number, host in enumerate(HOSTS, start=1):
            # Its addresses cannot be used in their first second, which MPI does not expect.
            run(*on(host, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1"))
            run("ip", "-n", host, "link", "set", "lo", "up")
            run("ip", "-n", host, "address", "add", f"10.11.12.{number}/24", "dev", LINK)
            run("ip", "-n", host, "link", "set", LINK, "mtu", str(MTU), "up")
            if gbit is not None:
                burst = max(_LEAST_BURST, round(gbit * 1e9 / 8 * _BURST_SECONDS))
                shape = ("tbf", "rate", f"{gbit}gbit", "burst", str(burst), "latency", "10ms")
                run("tc", "-n", host, "qdisc", "add", "dev", LINK, "root", *shape)
        _wait_until_up()
        yield HOSTS
    finally:
        before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, *_ENDING)}
        _remove()  # which a second Ctrl-C must not prevent
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait_until_up() -> None:
    """The kernel tells a second later; MPI libraries do not use an interface before."""
    end = time.monotonic() + _UP_SECONDS
    for host in HOSTS:
        while "state UP" not in run("ip", "-n", host, "link", "show", "dev", LINK):
            if time.monotonic() > end:
                raise NoHosts(f"{LINK} of {host} must come up within {_UP_SECONDS:g} s. It did not.")
            time.sleep(0.05)


def _remove(*, leftovers: bool = False) -> None:
    """End what runs on the hosts, then them; of leftovers, only those on which nothing runs any more."""
    there = {line.split()[0] for line in run("ip", "netns", "list").splitlines()}
    for host in there & set(HOSTS):
        running = [int(pid) for pid in run("ip", "netns", "pids", host).split()]
        if leftovers and running:
            raise NoHosts(f"another run must not be under way. Processes {running} are on {host}. Wait.")
        for pid in running:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        run("ip", "netns", "delete", host)


def end_tidily() -> None:
    """Let a signal that ends this process be an exception, so that what was made is removed first."""
    for number in _ENDING:
        signal.signal(number, lambda number, _: sys.exit(128 + number))


def main() -> None:
    """Run a command beside the two hosts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gbit", type=float, help="rate each way; default: unlimited")
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    end_tidily()
    try:
        with two_hosts(args.gbit):
            raise SystemExit(subprocess.run(args.command, check=False).returncode)
    except NoHosts as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
