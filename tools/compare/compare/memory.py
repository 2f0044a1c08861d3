"""Memory of servers: resident, as the kernel counts it, and live on Java's heap."""

import pathlib
import re
import subprocess


def resident(pid):
    """Returns the resident memory in bytes."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status).group(1)) * 1024


def heap(pid):
    """Runs a full collection and returns the live bytes on Java's heap."""
    histogram = subprocess.run(["jcmd", str(pid), "GC.class_histogram"], capture_output=True, text=True, check=True)
    return int(histogram.stdout.strip().splitlines()[-1].split()[2])


def measure(system):
    """Measures each server, in their order. The heap is last, as its measurement changes the resident memory."""
    found = [{"resident_bytes": resident(pid), "heap_bytes": None} for pid in system.pids()]
    if system.has_heap:
        for one, pid in zip(found, system.pids()):
            one["heap_bytes"] = heap(pid)
    return found


def grown(before, after, count):
    """Returns the growth of each server, divided by the number of items."""
    of = lambda name, old, new: None if old[name] is None else (new[name] - old[name]) / count  # noqa: E731
    return [{name: of(name, old, new) for name in old} for old, new in zip(before, after)]


def most(growths):
    """Returns the growth of the server that has grown most, for each kind of memory."""
    kinds = growths[0] if growths else {}
    return {name: max((one[name] for one in growths if one[name] is not None), default=None) for name in kinds}
