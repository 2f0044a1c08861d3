"""Large states of znodes and of sessions: the time to create them, their memory, and the time until all servers serve again with them."""

import time

from compare import memory
from compare.generators import at_work, end, longest_gap, report_progress, run, settle, writers

# Number of sessions before the first measurement of memory: it excludes memory that is allocated once.
FIRST_SESSIONS = 100
# Addresses of the sessions: a server limits the sessions of one address, Lockgate to 5,000.
FROM = "127.0.0.1,127.0.0.2,127.0.0.3,127.0.0.4"


def state(plan, system, results):
    """Measures many znodes or keys of 100 bytes."""
    before = memory.measure(system)
    means = system.means
    if system.name in ("lockgate", "zookeeper"):
        command = [str(means.lockgate), "bench", "fill"]
    else:
        command = [str(means.peers), "fill", system.name]
    [filled] = run(plan, [*command, "--znodes", str(plan.znodes), *system.target(), "--json"])
    kept = {
        "znodes": plan.znodes,
        "per_second": filled["per_second"],
        **memory.most(memory.grown(before, memory.measure(system), plan.znodes)),
        "restart_ms": None,
    }
    if system.name != "redis":
        with writers(plan, system) as process:
            settle()
            system.kill_all()
            system.start_again()
            settle()
            kept["restart_ms"] = longest_gap(system, process)
    report_progress(f"  {kept}")
    results["state"].setdefault(system.name, []).append(kept)


def sessions(plan, system, results):
    """Measures many sessions with a connection each, all at one server: the growth of that server, and of the others."""
    # The leader has the whole state of a session, as it also watches its timeout.
    leader = system.leader()
    count = plan.sessions - min(FIRST_SESSIONS, plan.sessions // 2)
    with idle(plan, system, plan.sessions - count, at_leader=True):
        before = memory.measure(system)
        with idle(plan, system, count, at_leader=True) as process:
            time.sleep(plan.held_seconds)
            grown = memory.grown(before, memory.measure(system), count)
            end(system, process)
    # A second run at all servers, as with real clients; Java has compiled the code by now.
    opened = run(plan, [*idle_command(system, plan.sessions), "--seconds", "0"])
    kept = {
        "sessions": plan.sessions,
        "opened_per_second": opened["opened_per_second"],
        "opening": opened["opening"],
        "connected": grown.pop(leader),
        "elsewhere": memory.most(grown),
    }
    report_progress(f"  {kept}")
    results["sessions"].setdefault(system.name, []).append(kept)


def sessions_without_connections(plan, system, results):
    """Measures as many sessions over HTTP with few connections, which only Lockgate has."""
    count = plan.sessions - min(FIRST_SESSIONS, plan.sessions // 2)
    with idle(plan, system, plan.sessions - count, over="http"):
        before = memory.measure(system)
        with idle(plan, system, count, over="http") as process:
            time.sleep(plan.held_seconds)
            grown = memory.grown(before, memory.measure(system), count)
            opened = end(system, process)
    kept = {"sessions": plan.sessions, "opened_per_second": opened["opened_per_second"], **memory.most(grown)}
    report_progress(f"  without connections: {kept}")
    results["unconnected"].setdefault(system.name, []).append(kept)


def idle_command(system, count, over="zookeeper"):
    """Returns the command that opens sessions, keeps them open, and closes them."""
    command = [str(system.means.lockgate), "bench", "idle", "--sessions", str(count), "--over", over, "--json", *system.target()]
    return command + (["--from", FROM] if over == "zookeeper" else [])


def idle(plan, system, count, at_leader=False, over="zookeeper"):
    """Opens sessions that stay open until they are interrupted."""
    # The leader is the first in the clients' list.
    where = ["--at", "1"] if at_leader else []
    command = [*idle_command(system, count, over), *where, "--seconds", "3600"]
    return at_work(plan, system, command, "sessions are open")
