"""Plots as SVG: lines over the number of clients, and bars. They follow the reader's dark or light theme."""

import html
import math

from compare.figures import NAMES, median

# Okabe and Ito's colours, which colour-blind readers can distinguish, and teal for the bound.
COLOURS = dict(
    zip(
        NAMES,
        ["#0072b2", "#004a75", "#56b4e9", "#6a51a3", "#d55e00", "#8c3d00", "#009e73", "#cc79a7", "#e69f00", "#17becf", "#0b6f78"],
        strict=True,
    )
)
WIDTH, HEIGHT = 820, 380
LEFT, RIGHT, TOP, BOTTOM = 70, 280, 44, 52
# Right edge of the names of bars.
NAMED = 290
BAR = 34
STYLE = """<style>
text { font: 13px system-ui, sans-serif; fill: #1b1f24 } .title { font-size: 15px; font-weight: 600 }
.grid { stroke: #8b949e; stroke-opacity: .35 } .line { fill: none; stroke-width: 2.5 }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .paper { fill: #0d1117 } }
.paper { fill: #ffffff } @media (prefers-color-scheme: dark) { .paper { fill: #0d1117 } }
</style>"""
LATENCIES = [("p50_us", "p50", ""), ("p99_us", "p99", "6 4"), ("p99_9_us", "p99.9", "2 3")]


def draw(results, figures, directory):
    """Draws all plots that have data, and returns the files' names and titles."""
    drawn = []

    def keep(name, title, picture):
        if picture:
            (directory / name).write_text(picture)
            drawn.append((name, title))

    for workload in ("lock", "set"):
        rows = figures.rows(workload)
        if len(rows) < 2:
            continue
        title = f"{workload}: operations per second by clients"
        keep(f"{workload}-throughput.svg", title, throughput(figures, rows, title))
        title = f"{workload}: latency in ms by clients (p50, p99 dashed, p99.9 dotted)"
        keep(f"{workload}-latency.svg", title, latency(figures, rows, title))
    title = "One contended lock: handover, p50 in ms"
    keep("hand-over.svg", title, bars(title, hand_over_bars(figures)))
    title = "Leader lost: ms without a write, median"
    losses = [
        (f"{system_name(key.split('/')[0])}, {key.split('/')[1]}", median(gaps), colour(key.split("/")[0]))
        for key, gaps in results["failover"].items()
    ]
    keep("failover.svg", title, bars(title, losses))
    for name, title, found in [*state_bars(results["state"]), *session_bars(results), *watch_bars(results.get("watch", {}))]:
        keep(name, title, bars(title, found))
    return drawn


def memory_bars(label, kept, ink):
    """Returns bars of resident memory, and for Java also of live memory."""
    alive, resident = (median([one[kind] for one in kept]) for kind in ("heap_bytes", "resident_bytes"))
    if alive is None:
        return [(label, resident, ink)]
    return [(f"{label}, on its heap", alive, ink), (f"{label}, resident", resident, ink)]


def state_bars(state):
    if not state:
        return
    memory = [bar for system, kept in state.items() for bar in memory_bars(system_name(system), kept, colour(system))]
    yield "memory.svg", "Memory for a znode or key of 100 bytes, in bytes", memory
    for field, name, title in (
        ("per_second", "load.svg", f"{next(iter(state.values()))[0]['znodes']:,} znodes or keys: created per second"),
        ("restart_ms", "restart.svg", "All servers killed and restarted: ms without a write"),
    ):
        some = [(system_name(system), median([one[field] for one in kept]), colour(system)) for system, kept in state.items()]
        yield name, title, [bar for bar in some if bar[1] is not None]


def session_bars(results):
    found = []
    for where, what in (("connected", "with its connection"), ("elsewhere", "without")):
        for system, kept in results.get("sessions", {}).items():
            found += memory_bars(f"{system_name(system)}, {what}", [one[where] for one in kept], colour(system))
    yield "session-memory.svg", "Memory for an idle session at a server, in bytes", found
    opened = [
        (system_name(system), median([one["opened_per_second"] for one in kept]), colour(system))
        for system, kept in results.get("sessions", {}).items()
    ]
    yield "session-openings.svg", "Sessions opened per second", opened


def watch_bars(watched):
    found = []
    for key, reports in watched.items():
        system, how, count = key.split("/")
        label = f"{system_name(system)}, {int(count):,}" + ("" if how == "together" else ", read at once")
        found.append((int(count), how == "at once", label, median([report["last"]["p50_us"] / 1000 for report in reports]), colour(system)))
    found.sort(key=lambda bar: bar[:2])
    yield "watch.svg", "All watchers notified of a change: ms, p50", [bar[2:] for bar in found]


def system_name(system):
    return {"lockgate": "Lockgate", "zookeeper": "ZooKeeper", "etcd": "etcd", "redis": "one Redis", "redlock": "RedLock"}[system]


def colour(system):
    return next(colour for subject, colour in COLOURS.items() if subject.startswith(system))


def throughput(figures, rows, title):
    lines = []
    for subject, name in NAMES.items():
        points = [(row[1], figures.rate(row, subject)) for row in rows]
        lines.append((name, COLOURS[subject], "", [point for point in points if point[1]]))
    return line_plot(title, lines)


def latency(figures, rows, title):
    lines = []
    for subject in NAMES:
        for field, name, dashes in LATENCIES:
            points = [(row[1], figures.latency(row, subject, field)) for row in rows]
            label = NAMES[subject] if name == "p50" else ""
            lines.append((label, COLOURS[subject], dashes, [point for point in points if point[1]]))
    return line_plot(title, lines)


def hand_over_bars(figures):
    rows = figures.rows("contended")
    row = next((row for row in rows if row[1] == 16), rows[0] if rows else None)
    if row is None:
        return []
    found = [
        (f"{name}, {row[1]} clients", figures.latency(row, subject, "p50_us", "hand_over"), COLOURS[subject])
        for subject, name in NAMES.items()
    ]
    return [bar for bar in found if bar[1] is not None]


def frame(title, body, height=HEIGHT):
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{html.escape(title)}">'
        f'{STYLE}<rect class="paper" width="{WIDTH}" height="{height}"/>'
        f'<text class="title" x="16" y="26">{html.escape(title)}</text>{body}</svg>\n'
    )


def short(value):
    if value >= 1000:
        return f"{value / 1000:,.0f}k" if value >= 10000 else f"{value / 1000:.1f}k"
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def line_plot(title, lines):
    lines = [line for line in lines if line[3]]
    if not lines:
        return ""
    clients = sorted({x for *_, points in lines for x, _ in points})
    values = [y for *_, points in lines for _, y in points]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)

    def x(value):
        first, last = math.log2(clients[0]), math.log2(clients[-1])
        return LEFT + (WIDTH - LEFT - RIGHT) * (math.log2(value) - first) / max(last - first, 1)

    def y(value):
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (math.log10(value) - low) / (high - low)

    body = []
    for power in range(low, high + 1):
        for step in (1, 2, 5):
            value = step * 10.0**power
            if value > 10.0**high:
                continue
            body.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>')
            body.append(f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{short(value)}</text>')
    for count in clients:
        body.append(f'<text x="{x(count):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{count}</text>')
    body.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" text-anchor="middle">clients</text>')
    labels = 0
    for label, ink, dashes, points in lines:
        path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in points)
        dash = f' stroke-dasharray="{dashes}"' if dashes else ""
        body.append(f'<polyline class="line" stroke="{ink}"{dash} points="{path}"/>')
        if not dashes:
            body += [f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="3.5" fill="{ink}"/>' for a, b in points]
        if label:
            top = TOP + 16 + 22 * labels
            labels += 1
            body.append(f'<rect x="{WIDTH - RIGHT + 16}" y="{top - 9}" width="14" height="10" fill="{ink}"/>')
            body.append(f'<text x="{WIDTH - RIGHT + 36}" y="{top}">{html.escape(label)}</text>')
    return frame(title, "".join(body))


def bars(title, found):
    """Draws a bar for each name, value and colour."""
    if not found:
        return ""
    most = max([value for _, value, _ in found] + [1e-9])
    body = []
    for place, (name, value, ink) in enumerate(found):
        top = TOP + 8 + place * BAR
        width = max(2, (WIDTH - NAMED - 110) * value / most)
        body.append(f'<text x="{NAMED}" y="{top + BAR * 0.6:.1f}" text-anchor="end">{html.escape(name)}</text>')
        body.append(f'<rect x="{NAMED + 10}" y="{top + 3:.1f}" width="{width:.1f}" height="{BAR - 8}" fill="{ink}"/>')
        shown = f"{value:,.0f}" if value >= 10 else f"{value:.2f}"
        body.append(f'<text x="{NAMED + 18 + width:.1f}" y="{top + BAR * 0.6:.1f}">{shown}</text>')
    return frame(title, "".join(body), TOP + 20 + BAR * len(found))
