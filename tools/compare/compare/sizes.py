"""Much of something: znodes, and sessions. How fast it is there, what memory it takes, and how soon all serve again with it."""

import time

from compare import memory
from compare.generators import at_work, end, longest_gap, run, settle, tell, writers

# Sessions before the first look: what the first few need that the others do not is not theirs.
FIRST_SESSIONS = 100
# Where sessions come from: a server lets in only so many from one address, Lockgate's 5,000.
FROM = "127.0.0.1,127.0.0.2,127.0.0.3,127.0.0.4"


def state(plan, system, results):
    """Many znodes or keys of 100 bytes."""
    before = memory.look(system)
    means = system.means
    if system.name in ("lockgate", "zookeeper"):
        command = [str(means.lockgate), "bench", "fill"]
    else:
        command = [str(means.peers), "fill", system.name]
    [filled] = run(plan, [*command, "--znodes", str(plan.znodes), *system.target(), "--json"])
    kept = {
        "znodes": plan.znodes,
        "per_second": filled["per_second"],
        **memory.most(memory.grown(before, memory.look(system), plan.znodes)),
        "restart_ms": None,
    }
    if system.name != "redis":
        with writers(plan, system) as process:
            settle()
            system.kill_all()
            system.start_again()
            settle()
            kept["restart_ms"] = longest_gap(system, process)
    tell(f"  {kept}")
    results["state"].setdefault(system.name, []).append(kept)


def sessions(plan, system, results):
    """Many sessions with a connection each, all at one server: what it has more of, and what the others have of the same sessions."""
    # All that there is to a session is at the leader: its time is watched there, too.
    leader = system.leader()
    count = plan.sessions - min(FIRST_SESSIONS, plan.sessions // 2)
    with idle(plan, system, plan.sessions - count, at_leader=True):
        before = memory.look(system)
        with idle(plan, system, count, at_leader=True) as process:
            time.sleep(plan.held_seconds)
            grown = memory.grown(before, memory.look(system), count)
            end(system, process)
    # Once more at all servers, as clients do; and Java has compiled by now what is used.
    opened = run(plan, [*idle_command(system, plan.sessions), "--seconds", "0"])
    kept = {
        "sessions": plan.sessions,
        "opened_per_second": opened["opened_per_second"],
        "opening": opened["opening"],
        "connected": grown.pop(leader),
        "elsewhere": memory.most(grown),
    }
    tell(f"  {kept}")
    results["sessions"].setdefault(system.name, []).append(kept)


def sessions_without_connections(plan, system, results):
    """The same number by HTTP, over few connections: Lockgate alone has such."""
    count = plan.sessions - min(FIRST_SESSIONS, plan.sessions // 2)
    with idle(plan, system, plan.sessions - count, over="http"):
        before = memory.look(system)
        with idle(plan, system, count, over="http") as process:
            time.sleep(plan.held_seconds)
            grown = memory.grown(before, memory.look(system), count)
            opened = end(system, process)
    kept = {"sessions": plan.sessions, "opened_per_second": opened["opened_per_second"], **memory.most(grown)}
    tell(f"  without connections: {kept}")
    results["unconnected"].setdefault(system.name, []).append(kept)


def idle_command(system, count, over="zookeeper"):
    """The program that opens so many, keeps them, and closes them."""
    command = [str(system.means.lockgate), "bench", "idle", "--sessions", str(count), "--over", over, "--json", *system.target()]
    return command + (["--from", FROM] if over == "zookeeper" else [])


def idle(plan, system, count, at_leader=False, over="zookeeper"):
    """So many, until they are told to end."""
    # Clients are told of the leader first.
    where = ["--at", "1"] if at_leader else []
    command = [*idle_command(system, count, over), *where, "--seconds", "3600"]
    return at_work(plan, system, command, "sessions are open")
