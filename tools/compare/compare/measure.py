"""Everything that is planned, one system after the other: what comes out is kept as the load generators print it, round by round."""

import signal

from compare import servers, sizes
from compare.generators import longest_gap, run, settle, tell, writers

# By so many every load is put on a system before anything is measured.
WARM_UP_CLIENTS = 16


def all_rounds(plan, means, machine):
    """Everything, as often as is wanted. Yields all results so far after each system."""
    results = {
        "machine": machine,
        "versions": {},
        "seconds": plan.seconds,
        "loads": [],
        "failover": {},
        "state": {},
        "sessions": {},
        "unconnected": {},
        "watch": {},
    }
    for number in range(1, plan.rounds + 1):
        for name in plan.systems:
            one_system(plan, means, name, number, results)
            yield results


def one_system(plan, means, name, number, results):
    # A load is measured on data that have grown by the loads before it; all else begins with none.
    doing = {
        "loads": run_loads,
        "failover": failover,
        "state": sizes.state,
        "sessions": sizes.sessions,
        "sessions without connections": sizes.sessions_without_connections,
        "watch": watch,
    }
    planned = plan.others(name)
    if list(plan.loads(name)):
        planned.insert(0, "loads")
    if "sessions" in planned and name == "lockgate":
        planned.insert(planned.index("sessions") + 1, "sessions without connections")
    for what in planned:
        system = servers.SYSTEMS[name](means)
        tell(f"round {number}: {name}, {what}")
        try:
            system.start_all()
            results["versions"][name] = system.version()
            doing[what](plan, system, results)
        except SystemExit:
            tell(system.log_tail())
            raise
        finally:
            system.stop()


def run_loads(plan, system, results):
    loads = list(plan.loads(system.name))
    # In a quick look only what is slow without it: Java.
    warm = loads if not plan.quick or system.name == "zookeeper" else []
    for workload, over, _ in warm:
        load(plan, system, workload, over, [WARM_UP_CLIENTS], plan.warm_up_seconds, 0)
    for workload, over, clients in loads:
        for report in load(plan, system, workload, over, clients, plan.seconds, plan.warmup):
            keep(results, system.name, over, workload, report)
            tell(f"  {workload} over {over}, {report['clients']} clients: {report['operations_per_second']:.0f}/s")


def load(plan, system, workload, over, clients, seconds, warmup):
    """The reports of one load, one for each number of clients."""
    reports = []
    # One at a time: what is run before each may stop for others between them.
    for count in clients:
        how = ["--clients", str(count), "--seconds", str(seconds), "--warmup", str(warmup), "--json"]
        reports += run(plan, generator(system, workload, over) + how)
    return reports


def generator(system, workload, over):
    """Who makes the load."""
    means = system.means
    over, _, where = over.partition("@")
    target = system.target_at_leader() if where == "leader" else system.target()
    if over in ("http", "zookeeper"):
        return [str(means.lockgate), "bench", workload, "--over", over, *target]
    return [str(means.peers), over, "--workload", workload, *target]


def keep(results, system, over, workload, report):
    key = {"system": system, "over": over, "workload": workload, "clients": report["clients"]}
    for entry in results["loads"]:
        if all(entry[name] == value for name, value in key.items()):
            entry["reports"].append(report)
            return
    results["loads"].append({**key, "reports": [report]})


def watch(plan, system, results):
    """Many sessions that watch one znode: how long it takes until all know of a change."""
    watching = system.watching()
    # What Java has not compiled yet is no measure of it; the largest number needs the longest.
    largest = ["--sessions", str(plan.watchers[-1]), "--seconds", str(plan.watch_warm_up_seconds), "--warmup", "0"]
    run(plan, [*watching, *largest])
    for how, arguments in (("together", []), ("at once", ["--at-once"])):
        command = [*watching, *arguments]
        numbers = [["--sessions", str(count)] for count in plan.watchers]
        # What is done only in this way is compiled in a moment.
        run(plan, [*command, *numbers[-1], "--seconds", str(plan.warm_up_seconds), "--warmup", "0"])
        for number in numbers:
            [report] = run(plan, [*command, *number, "--seconds", str(plan.seconds), "--warmup", str(plan.warmup)])
            tell(f"  {report['sessions']} watchers, who read {how}: all told in {report['last']['p50_us'] / 1000:.1f} ms")
            results["watch"].setdefault(f"{system.name}/{how}/{report['sessions']}", []).append(report)


def failover(plan, system, results):
    """The leader is killed, or frozen, under writers; how long nobody could write."""
    for loss in plan.losses * plan.losses_each:
        with writers(plan, system) as process:
            settle()
            leader = system.leader()
            if loss == "killed":
                system.kill(leader)
            else:
                system.signal(leader, signal.SIGSTOP)
            system.leader(without=leader)
            settle()
            longest = longest_gap(system, process)
        tell(f"  leader {loss}: no write for {longest:.0f} ms")
        results["failover"].setdefault(f"{system.name}/{loss}", []).append(longest)
        if loss == "killed":
            system.start(leader)
        else:
            system.signal(leader, signal.SIGCONT)
        system.wait_serving()
        settle()
