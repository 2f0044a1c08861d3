"""The programs that make the loads: run to their end, or kept at work until they are told to end. They print JSON."""

import contextlib
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time

# Whoever writes has begun by then, and goes on for so long after the new leader is seen.
SETTLE_SECONDS = 2
# So long one may take to end what it does: to close ten thousand sessions, too.
END_SECONDS = 120


def run(plan, command):
    """Runs it to its end, and returns what it prints."""
    done = subprocess.run([*plan.before_each, *command], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{shlex.join(command)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


@contextlib.contextmanager
def at_work(plan, system, command, said):
    """A process that has said on its standard error that it is at work. It ends with this, whatever happens."""
    process = subprocess.Popen(
        [*plan.before_each, *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
        # Whoever starts a comparison in the background ignores this signal, and a program goes on ignoring what it was started with.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    try:
        # What it says before tells how far it is. Whatever is done to the servers before that would not be seen.
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
    """Ends it, and returns what it prints then."""
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
    """Some who write without a pause, and say in the end when they could not."""
    means = system.means
    if system.name == "etcd":
        command = [str(means.peers), "etcd-gap", *system.target(), "--seconds", "300"]
    else:
        over = "http" if system.name == "lockgate" else "zookeeper"
        command = [str(means.lockgate), "bench", "gap", "--over", over, *system.target(), "--seconds", "300", "--json"]
    return at_work(plan, system, command, "writers are running")


def longest_gap(system, process):
    """Ends writers, and returns what they have seen in milliseconds."""
    return end(system, process)["longest_ms"]


def settle():
    """Lets writers write."""
    time.sleep(SETTLE_SECONDS)


def interrupt(system, process, what):
    """Tells the generator, and not what runs it: that ends with it."""
    generators = {system.means.lockgate, system.means.peers}
    for pid in [process.pid, *descendants(process.pid)]:
        try:
            if what == signal.SIGKILL or pathlib.Path(f"/proc/{pid}/exe").resolve() in generators:
                os.kill(pid, what)
        except OSError:
            # It has ended meanwhile.
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


def tell(text):
    print(text, file=sys.stderr, flush=True)
