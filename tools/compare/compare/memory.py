"""How much memory servers have: as the kernel counts it, and what of it is alive on Java's heap."""

import pathlib
import re
import subprocess


def resident(pid):
    """In bytes."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status).group(1)) * 1024


def heap(pid):
    """What is alive on Java's heap after a full collection, which this makes, in bytes."""
    histogram = subprocess.run(["jcmd", str(pid), "GC.class_histogram"], capture_output=True, text=True, check=True)
    return int(histogram.stdout.strip().splitlines()[-1].split()[2])


def look(system):
    """Of each server, in their order. The heap is looked at last: that changes what is resident."""
    found = [{"resident_bytes": resident(pid), "heap_bytes": None} for pid in system.pids()]
    if system.has_heap:
        for one, pid in zip(found, system.pids()):
            one["heap_bytes"] = heap(pid)
    return found


def grown(before, after, count):
    """What each server has more of than before, for each of so many things."""
    of = lambda name, old, new: None if old[name] is None else (new[name] - old[name]) / count  # noqa: E731
    return [{name: of(name, old, new) for name in old} for old, new in zip(before, after)]


def most(growths):
    """Of all servers the one that has grown most, kind by kind."""
    kinds = growths[0] if growths else {}
    return {name: max((one[name] for one in growths if one[name] is not None), default=None) for name in kinds}
