"""The text of the document: tables between two markers, the ratios first, and the plots beside the document."""

from compare import foreground, machine, plots
from compare.figures import BOUND, NAMES, OURS, PEERS, Figures, median, rounds

BEGIN = "<!-- tools/compare: begin -->"
END = "<!-- tools/compare: end -->"


def text(results):
    """Returns the whole text as Markdown."""
    figures = Figures(results)
    parts = [introduction(results), main_results(results, figures)]
    if figures.cells:
        parts += [ratios(figures), bound(figures), loads(figures)]
    if any(row[0] == "contended" for row in figures.cells):
        parts.append(hand_overs(figures))
    if results["failover"]:
        parts.append(failover(results["failover"]))
    if results["state"]:
        parts.append(state(results["state"]))
    if results.get("sessions"):
        parts.append(sessions(results["sessions"], results.get("unconnected", {})))
    if results.get("watch"):
        parts.append(watch(results["watch"]))
    return "\n\n".join(part for part in parts if part)


def write(results, document):
    """Writes the text between the markers, and the plots into images/performance beside the document."""
    old = document.read_text()
    before, _, rest = old.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise SystemExit(f"{document} lacks the markers {BEGIN} and {END}")
    images = document.parent / "images/performance"
    images.mkdir(parents=True, exist_ok=True)
    drawn = plots.draw(results, Figures(results), images)
    pictures = "\n".join(f"![{title}](images/performance/{name})" for name, title in drawn)
    document.write_text(f"{before}{BEGIN}\n\n{text(results)}\n\n{pictures}\n\n{END}{after}")


def introduction(results):
    versions = ", ".join(
        f"{name} {results['versions'][system]}"
        for system, name in (("lockgate", "Lockgate"), ("zookeeper", "ZooKeeper"), ("etcd", "etcd"), ("redis", "Redis"))
        if system in results["versions"]
    )
    least, most = rounds(results)
    several = f"Medians of {least} to {most} rounds" if least != most else f"Medians of {most} rounds"
    of = several if most > 1 else "One round"
    calls = results.get("calls", 1)
    apart = f"The measurement ran in {calls} parts." if calls > 1 else ""
    length = f"each load runs for {results['seconds']} s" if results["loads"] else ""
    said = (
        f"{versions}. {machine.sentence(results['machine'])} Three servers of each (but one Redis), which share the machine with their "
        f"clients. {of}, in which the systems take turns{'; ' + length if length else ''}."
    )
    return " ".join(part for part in (said, apart, results.get("note", "")) if part)


def main_results(results, figures):
    rows = foreground.rows(results, figures)
    if not rows:
        return ""
    return (
        "The main results, as ratios. A ratio with an x is Lockgate's throughput divided by the other system's; for a commit, Lockgate's "
        "time divided by the minimum. A ratio without an x is Lockgate's time or memory divided by the other system's. All results "
        "follow.\n\n"
        + table(["", "Lockgate", "other system", "its figure", "ratio"], rows)
    )


def table(heading, rows):
    """Formats a table: the first column has names, the others have numbers."""
    lines = ["| " + " | ".join(heading) + " |", "|---|" + "---:|" * (len(heading) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def number(value, digits=0):
    return "" if value is None else f"{value:,.{digits}f}"


def ms(value):
    if value is None:
        return ""
    return number(value, 2 if value < 10 else 1 if value < 100 else 0)


def times(value):
    return "" if value is None else f"**{value:.1f}x**" if value < 10 else f"**{value:.0f}x**"


def ratios(figures):
    rows = []
    for row in figures.rows():
        ours = figures.ours(row)
        if ours is None or not any(figures.ratio(row, peer) for peer in PEERS):
            continue
        p99 = figures.latency(row, ours, "p99_us")
        theirs = figures.latency(row, "zookeeper/zookeeper", "p99_us")
        rows.append(
            [row[0], str(row[1]), number(figures.rate(row, ours))]
            + [times(figures.ratio(row, peer)) for peer in PEERS]
            + ["" if not (p99 and theirs) else f"{p99 / theirs:.2f}"]
        )
    if not rows:
        return "No other system was measured."
    heading = ["workload", "clients", "Lockgate, operations/s"]
    heading += [f"times {NAMES[peer]}" for peer in PEERS] + ["p99 / ZooKeeper's p99"]
    return (
        "Lockgate's throughput divided by each other system's. Its locks use its own API, its znodes ZooKeeper's protocol:\n\n"
        + table(heading, rows)
    )


def bound(figures):
    """Compares the minimal server with ZooKeeper, and Lockgate's throughput with the minimal server's."""
    rows = []
    for row in figures.rows():
        for where, said in (("", ""), ("@leader", ", at the leader")):
            subjects = [BOUND + where, "zookeeper/zookeeper" + where, OURS[row[0]] + where]
            rate, theirs, ours = (figures.rate(row, subject) for subject in subjects)
            if not (rate and ours):
                continue
            of = "hand_over" if row[0] == "contended" else "operation"
            latencies = [
                ms(figures.latency(row, subject, name, of)) for name in ("p50_us", "p99_us") for subject in (subjects[0], subjects[2])
            ]
            ratio = [times(own / theirs if theirs else None) for own in (rate, ours)]
            rows.append([row[0] + said, str(row[1]), number(rate), *ratio, f"{ours / rate:.2f}", *latencies])
    if not rows:
        return ""
    heading = ["workload", "clients", "the bound, operations/s", "the bound, times ZooKeeper", "Lockgate, times ZooKeeper"]
    heading += ["Lockgate, of the bound", "the bound, p50 ms", "Lockgate, p50 ms", "the bound, p99 ms", "Lockgate, p99 ms"]
    return (
        "The upper bound for a lock server built on openraft and HTTP: a minimal server of three processes (`bench-peers "
        "openraft-server`) under the same loads as Lockgate's locks. openraft replicates and its state machine replies, as in Lockgate; "
        "HTTP is served by the same library. The only state is the holders and waiters of locks. The first process is the "
        "leader, and no other can become it. Times of `contended` are those of handovers:\n\n"
        + table(heading, rows)
    )


def loads(figures):
    rows = []
    for row in figures.rows():
        for subject in figures.subjects(row):
            least, most = figures.spread(row, subject)
            latencies = [figures.latency(row, subject, name) for name in ("p50_us", "p99_us", "p99_9_us")]
            rows.append(
                [row[0], str(row[1]), NAMES[subject], number(figures.rate(row, subject)), f"{least:,.0f} to {most:,.0f}"]
                + [ms(latency) for latency in latencies]
                + [number(figures.cpu(row, subject, "client_cpu_us"), 1)]
            )
    heading = ["workload", "clients", "system", "operations/s", "rounds", "p50 ms", "p99 ms", "p99.9 ms", "client CPU µs"]
    return "All loads; the last column is the load generator's own processor time for an operation:\n\n" + table(
        heading, rows
    )


def hand_overs(figures):
    rows = []
    for row in figures.rows("contended"):
        for subject in figures.subjects(row):
            latencies = [
                figures.latency(row, subject, name, "hand_over") for name in ("p50_us", "p99_us", "p99_9_us")
            ]
            if latencies[0] is not None:
                rows.append([NAMES[subject], str(row[1])] + [ms(latency) for latency in latencies])
    return (
        "Handover of one contended lock: from the first byte of a release to the last byte of the next grant, in ms. Redis has no queue: "
        "a client that does not get the lock retries after a random time of at most 5 ms.\n\n"
        + table(["system", "clients", "p50", "p99", "p99.9"], rows)
    )


def failover(losses):
    rows = []
    for how in ("killed", "frozen"):
        for subject, gaps in losses.items():
            system, lost = subject.split("/")
            if lost == how:
                signal = "SIGKILL" if how == "killed" else "SIGSTOP"
                name = plots.system_name(system)
                shown = [number(value) for value in (min(gaps), median(gaps), max(gaps))]
                rows.append([f"{name}, {signal}", str(len(gaps)), *shown])
    return (
        "Loss of the leader under twelve writers, spread over all servers: the longest time in which no write succeeded, in ms:"
        "\n\n" + table(["system", "times", "least", "median", "most"], rows)
    )


def state(systems):
    rows = []
    for system, kept in systems.items():
        of = lambda name: median([one[name] for one in kept])  # noqa: E731, B023
        rows.append(
            [plots.system_name(system), number(of("per_second")), number(of("resident_bytes"))]
            + [number(of("heap_bytes")), number(of("restart_ms"))]
        )
    count = next(iter(systems.values()))[0]["znodes"]
    return (
        f"{count:,} znodes or keys of 100 bytes: the number created per second; the memory of each at the server that has grown most "
        "(resident, and for Java also live after a full collection); and the time without a successful write after all servers were "
        "killed and restarted at once.\n\n"
        + table(["system", "created/s", "resident, bytes each", "on Java's heap, bytes each", "restart, ms"], rows)
    )


def sessions(systems, unconnected):
    rows = []
    for system, kept in systems.items():
        name = plots.system_name(system)
        for where, what in (("connected", "at the server with the connections"), ("elsewhere", "at another server")):
            of = lambda kind: median([one[where][kind] for one in kept])  # noqa: E731, B023
            rows.append([f"{name}, {what}", "", number(of("resident_bytes")), number(of("heap_bytes"))])
        opened = median([one["opened_per_second"] for one in kept])
        rows.append([f"{name}, at all servers", number(opened), "", ""])
    for system, kept in unconnected.items():
        of = lambda kind: median([one[kind] for one in kept])  # noqa: E731, B023
        name = f"{plots.system_name(system)}, by HTTP, without connections"
        rows.append([name, number(of("opened_per_second")), number(of("resident_bytes")), number(of("heap_bytes"))])
    count = next(iter(systems.values()))[0]["sessions"]
    return (
        f"{count:,} idle sessions, each of which has pinged at least once: the memory of each at a server. All connections are at the "
        "leader, so it has the whole state of a session, and another server only the replicated part. The rate at which sessions are "
        "opened is measured with connections spread over all servers.\n\n"
        + table(["system", "opened/s", "resident, bytes each", "on Java's heap, bytes each"], rows)
    )


def watch(watched):
    rows = []
    for key, reports in watched.items():
        system, how, count = key.split("/")
        of = lambda part, name: ms(median([report[part][name] / 1000 for report in reports]))  # noqa: E731, B023
        reads = {"together": "after all are notified", "at once": "at once"}[how]
        shown = [of(part, name) for part, name in (("median", "p50_us"), ("last", "p50_us"), ("last", "p99_us"), ("write", "p50_us"))]
        cpu = median([report["client_cpu_us"] for report in reports])
        rows.append((int(count), how, [plots.system_name(system), f"{int(count):,}", reads, *shown, number(cpu, 1)]))
    rows.sort(key=lambda row: (row[0], row[1] == "at once"))
    return (
        "Sessions that watch one znode, each with a connection, spread over the servers; another session changes it. "
        "Times in ms from the first byte of the write until the sessions are notified; then each reads the new data and sets its watch "
        "again. The last column is the load generator's own processor time for one notification and that read:\n\n"
        + table(
            ["system", "watchers", "read", "half notified, p50", "all notified, p50", "all notified, p99", "written, p50", "client CPU µs"],
            [row for *_, row in rows],
        )
    )
