"""The load generators: programs that run to their end, or until they are interrupted. They print JSON."""

import contextlib
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time

# Time in which every writer has started, and for which writers continue after a new leader is seen.
SETTLE_SECONDS = 2
# Time limit for a generator to end after an interrupt; it may have to close ten thousand sessions.
END_SECONDS = 120


def run(plan, command):
    """Runs a command to its end and returns its output."""
    done = subprocess.run([*plan.before_each, *command], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{shlex.join(command)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


@contextlib.contextmanager
def at_work(plan, system, command, said):
    """Starts a process and waits until it reports on its standard error that it is at work. The process ends with the context, in any case."""
    process = subprocess.Popen(
        [*plan.before_each, *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
        # A shell that starts a comparison in the background makes it ignore this signal, and a child process
        # inherits that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    try:
        # The lines before report the progress. A fault of the servers before the last one would not be
        # measured.
        before = []
        while said not in (line := process.stderr.readline()):
            if not line:
                raise SystemExit(f"{shlex.join(command)}: {''.join(before).strip()}")
            before.append(line)
        yield process
    finally:
        if process.poll() is None:
            interrupt(system, process, signal.SIGKILL)
            process.wait()


def end(system, process):
    """Interrupts the process and returns its output."""
    interrupt(system, process, signal.SIGINT)
    try:
        out, err = process.communicate(timeout=END_SECONDS)
    except subprocess.TimeoutExpired:
        interrupt(system, process, signal.SIGKILL)
        raise SystemExit(f"{shlex.join(process.args)} does not end") from None
    if process.returncode:
        raise SystemExit(f"{shlex.join(process.args)}: {err.strip()}")
    return json.loads(out)


def writers(plan, system):
    """Starts writers that write without pauses and finally report the times without a success."""
    means = system.means
    if system.name == "etcd":
        command = [str(means.peers), "etcd-gap", *system.target(), "--seconds", "300"]
    else:
        over = "http" if system.name == "lockgate" else "zookeeper"
        command = [str(means.lockgate), "bench", "gap", "--over", over, *system.target(), "--seconds", "300", "--json"]
    return at_work(plan, system, command, "writers are running")


def longest_gap(system, process):
    """Ends the writers and returns the longest time without a success in milliseconds."""
    return end(system, process)["longest_ms"]


def settle():
    """Waits while the writers write."""
    time.sleep(SETTLE_SECONDS)


def interrupt(system, process, what):
    """Signals the generator, and not the command that runs it, which ends along with it."""
    generators = {system.means.lockgate, system.means.peers}
    for pid in [process.pid, *descendants(process.pid)]:
        try:
            if what == signal.SIGKILL or pathlib.Path(f"/proc/{pid}/exe").resolve() in generators:
                os.kill(pid, what)
        except OSError:
            # The process has already ended.
            continue


def descendants(pid):
    try:
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    found = []
    for child in map(int, children):
        found += [child, *descendants(child)]
    return found


def report_progress(text):
    print(text, file=sys.stderr, flush=True)
