"""The compared systems, with functions that start them, find their leaders and stop them. All run on free ports of 127.0.0.1.

All settings except addresses and directories are each system's defaults, except three: Java's heap is bounded, etcd may exceed two
gigabytes, and Redis syncs each write, as it would otherwise not be durable.
"""

import dataclasses
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time
import urllib.request

# Start time limit: a Java server takes a few seconds, and far longer on a busy machine.
START_SECONDS = 90
ZOOKEEPER_JARS = ["/usr/share/java/zookeeper.jar", "/usr/share/java/slf4j-simple.jar"]
# Enough for 1,000,000 keys with their history.
ETCD_QUOTA_BYTES = 8 << 30


@dataclasses.dataclass
class Means:
    """The programs and directories that all systems need."""

    lockgate: pathlib.Path
    peers: pathlib.Path
    directory: pathlib.Path
    heap_megabytes: int


def missing(systems, lockgate, peers):
    """Returns descriptions of the missing programs."""
    found = []
    if not lockgate.exists():
        found.append(f"{lockgate} (cargo build --release -p lockgate)")
    if {"etcd", "redis", "redlock", "openraft-http"} & set(systems) and not peers.exists():
        found.append(f"{peers} (cargo build --release -p bench-peers)")
    if "zookeeper" in systems:
        if not all(pathlib.Path(jar).exists() for jar in ZOOKEEPER_JARS):
            found.append("ZooKeeper (Debian: libzookeeper-java, libslf4j-java)")
        if not shutil.which("java"):
            found.append("Java (Debian: default-jdk-headless)")
    if "etcd" in systems and not shutil.which("etcd"):
        found.append("etcd (Debian: etcd-server)")
    if {"redis", "redlock"} & set(systems) and not shutil.which("redis-server"):
        found.append("Redis (Debian: redis-server)")
    return found


def free_ports(count):
    """Returns different ports that were free a moment ago."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def until(what, holds, seconds=START_SECONDS):
    """Waits until `holds` returns a true value, and returns that."""
    deadline = time.monotonic() + seconds
    while True:
        found = holds()
        if found:
            return found
        if time.monotonic() > deadline:
            raise SystemExit(f"{what}: not within {seconds} s")
        time.sleep(0.02)


def ask(port, word):
    """Returns the response of a ZooKeeper server to a four-letter word."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(word)
            answer = b""
            while piece := connection.recv(4096):
                answer += piece
            return answer.decode(errors="replace")
    except OSError:
        return ""


class System:
    """The servers of one system."""

    name = ""
    # True for Java, whose resident memory includes garbage.
    has_heap = False

    def __init__(self, means):
        self.means = means
        self.directory = means.directory / self.name
        self.directory.mkdir()
        self.processes = []

    def command(self, number):
        """Returns the command that starts the server of this number."""
        raise NotImplementedError

    def start(self, number):
        """Starts a server that is not running."""
        home = self.directory / str(number)
        home.mkdir(exist_ok=True)
        with open(home / "log", "ab") as log:
            process = subprocess.Popen(
                self.command(number), cwd=home, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        while len(self.processes) <= number:
            self.processes.append(None)
        self.processes[number] = process

    def start_all(self):
        for number in range(self.count):
            self.start(number)
        self.wait_serving()

    def pids(self):
        return [process.pid for process in self.processes]

    def alive(self):
        """Checks that all servers are running; one that has ended will not serve."""
        for process in self.processes:
            if process.poll() is not None:
                raise SystemExit(f"a server of {self.name} has ended with {process.returncode}")
        return True

    def signal(self, number, what):
        os.kill(self.pids()[number], what)

    def kill(self, number):
        """Kills a server with SIGKILL and waits for its end."""
        self.processes[number].kill()
        self.processes[number].wait()

    def kill_all(self):
        """Kills all servers at the same time with SIGKILL."""
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()

    def start_again(self):
        """Starts all killed servers and waits until they serve."""
        for number in range(self.count):
            self.start(number)
        self.wait_serving()

    def stop(self):
        """Ends all servers and deletes their files."""
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def watching(self):
        """Returns the command that measures the time until watchers are notified."""
        return [str(self.means.lockgate), "bench", "watch", *self.target(), "--json"]

    def log_tail(self):
        logs = [(self.directory / str(number) / "log") for number in range(self.count)]
        return "\n".join(log.read_text(errors="replace")[-2000:] for log in logs if log.exists())


class Lockgate(System):
    """Three nodes with the settings of `lockgate dev up`."""

    name = "lockgate"
    count = 3

    def run(self, *arguments):
        command = [self.means.lockgate, "cluster", *arguments, "--dir", self.directory]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"lockgate cluster {arguments[0]}: {done.stderr}")
        return done.stdout

    def start_all(self):
        self.directory.rmdir()
        self.run("up", "--ephemeral-ports", "--redis")
        # As for the other systems, the leader is the first server in the clients' list.
        if self.leader() != 0:
            self.run("move-leader", "1")

    def start(self, number):
        self.run("up")

    def start_again(self):
        self.run("up")

    def wait_serving(self):
        until("a node of Lockgate", lambda: all(node["ready"] for node in self.status()))

    def kill_all(self):
        pids = self.pids()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for pid in pids:
            until("the end of a node", lambda: zombie(pid))  # noqa: B023

    def status(self):
        return json.loads(self.run("status", "--json"))

    def pids(self):
        return [node["pid"] for node in self.status()]

    def leader(self, without=None):
        def find():
            for number, node in enumerate(self.status()):
                if number != without and node["pid"] and node["role"] == "leader":
                    return (number,)
            return None

        return until("a leader", find)[0]

    def kill(self, number):
        pid = self.pids()[number]
        os.kill(pid, signal.SIGKILL)
        until("the end of a node", lambda: zombie(pid))

    def stop(self):
        if not self.directory.exists():
            return
        for node in self.status():
            if node["pid"]:
                os.kill(node["pid"], signal.SIGCONT)
        self.run("down")
        shutil.rmtree(self.directory, ignore_errors=True)

    def version(self):
        done = subprocess.run([self.means.lockgate, "--version"], capture_output=True, text=True, check=True)
        return done.stdout.split()[-1]

    def target(self):
        return ["--dir", str(self.directory)]

    def target_at_leader(self):
        return [*self.target(), "--at-leader"]

    def target_of_redis(self):
        """Returns the arguments with the ports for clients of Redis."""
        listen = 'redis_listen = "127.0.0.1:'
        configs = [self.directory / f"node-{number + 1}" / "config.toml" for number in range(self.count)]
        lines = [line for config in configs for line in config.read_text().splitlines() if line.startswith(listen)]
        return leader_first([int(line[len(listen) : -1]) for line in lines], self.leader())


def leader_alone(ports, leader):
    """Returns the arguments for clients that all connect to the leader."""
    return ["--server", f"127.0.0.1:{ports[leader]}"]


def leader_first(ports, leader):
    """Returns the arguments with the servers. The leader is first: a single client connects to it and saves one message in every system."""
    ports = [ports[leader], *ports[:leader], *ports[leader + 1 :]]
    return ["--server", ",".join(f"127.0.0.1:{port}" for port in ports)]


def zombie(pid):
    """Returns whether a process has ended, although its parent has not collected it."""
    try:
        return ") Z " in pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True


class ZooKeeper(System):
    """Three servers with the timing of ZooKeeper's own sample, and forceSync, which is its default."""

    name = "zookeeper"
    count = 3
    has_heap = True

    def __init__(self, means):
        super().__init__(means)
        ports = free_ports(3 * self.count)
        self.client, quorum, election = ports[0:3], ports[3:6], ports[6:9]
        for number in range(self.count):
            data = self.directory / str(number) / "data"
            data.mkdir(parents=True)
            (data / "myid").write_text(f"{number + 1}")
            lines = [
                "tickTime=2000", "initLimit=10", "syncLimit=5", f"dataDir={data}", f"clientPort={self.client[number]}",
                "clientPortAddress=127.0.0.1", "maxClientCnxns=0", "4lw.commands.whitelist=srvr",
            ]
            lines += [
                f"server.{other + 1}=127.0.0.1:{quorum[other]}:{election[other]}" for other in range(self.count)
            ]
            (self.directory / str(number) / "zoo.cfg").write_text("\n".join(lines) + "\n")

    def command(self, number):
        return [
            "java", f"-Xmx{self.means.heap_megabytes}m", "-Dzookeeper.admin.enableServer=false",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", ":".join(ZOOKEEPER_JARS),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(self.directory / str(number) / "zoo.cfg"),
        ]  # fmt: skip

    def wait_serving(self):
        for port in self.client:
            until("a server of ZooKeeper", lambda: self.alive() and "Mode:" in ask(port, b"srvr"))  # noqa: B023

    def leader(self, without=None):
        def find():
            for number, port in enumerate(self.client):
                if number != without and "Mode: leader" in ask(port, b"srvr"):
                    return (number,)
            return None

        return until("ZooKeeper's leader", find)[0]

    def version(self):
        return ask(self.client[0], b"srvr").split("version: ")[1].split("-")[0]

    def target(self):
        return leader_first(self.client, self.leader())

    def target_at_leader(self):
        return leader_alone(self.client, self.leader())


class Etcd(System):
    """Three members."""

    name = "etcd"
    count = 3

    def __init__(self, means):
        super().__init__(means)
        ports = free_ports(2 * self.count)
        self.client, self.peer = ports[:3], ports[3:]

    def command(self, number):
        url, peer = f"http://127.0.0.1:{self.client[number]}", f"http://127.0.0.1:{self.peer[number]}"
        members = ",".join(f"m{other}=http://127.0.0.1:{port}" for other, port in enumerate(self.peer))
        return [
            "etcd", "--name", f"m{number}", "--data-dir", str(self.directory / str(number) / "data"),
            "--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", peer,
            "--initial-advertise-peer-urls", peer, "--initial-cluster", members, "--initial-cluster-state", "new",
            "--quota-backend-bytes", str(ETCD_QUOTA_BYTES), "--log-level", "error", "--logger", "zap",
        ]  # fmt: skip

    def post(self, number, path):
        request = urllib.request.Request(f"http://127.0.0.1:{self.client[number]}{path}", data=b"{}")
        try:
            with urllib.request.urlopen(request, timeout=2) as answer:
                return json.load(answer)
        except OSError:
            return {}

    def status(self, number):
        return self.post(number, "/v3/maintenance/status")

    def wait_serving(self):
        for number in range(self.count):
            until(
                "a member of etcd",
                lambda: self.alive() and self.status(number).get("leader", "0") != "0",  # noqa: B023
            )

    def leader(self, without=None):
        def find():
            for number in range(self.count):
                status = {} if number == without else self.status(number)
                if status.get("leader") and status["leader"] == status["header"]["member_id"]:
                    return (number,)
            return None

        return until("etcd's leader", find)[0]

    def version(self):
        return self.status(0)["version"]

    def target(self):
        return leader_first(self.client, self.leader())


class Redis(System):
    """One master, which syncs each write before it acknowledges it."""

    name = "redis"
    count = 1

    def __init__(self, means):
        super().__init__(means)
        self.client = free_ports(self.count)

    def command(self, number):
        return [
            "redis-server", "--port", str(self.client[number]), "--bind", "127.0.0.1", "--dir",
            str(self.directory / str(number)), "--appendonly", "yes", "--appendfsync", "always", "--save", "",
        ]  # fmt: skip

    def wait_serving(self):
        for port in self.client:
            until("a Redis", lambda: self.alive() and ask_redis(port, b"PING").startswith("+PONG"))  # noqa: B023

    def version(self):
        for line in ask_redis(self.client[0], b"INFO server").splitlines():
            if line.startswith("redis_version:"):
                return line.split(":")[1].strip()
        return "?"

    def target(self):
        return ["--server", ",".join(f"127.0.0.1:{port}" for port in self.client)]


class RedLock(Redis):
    """Three independent masters."""

    name = "redlock"
    count = 3


def ask_redis(port, command):
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(command + b"\r\n")
            return connection.recv(65536).decode(errors="replace")
    except OSError:
        return ""


class OpenraftHttp(System):
    """The minimal server of bench-peers: the upper bound for a lock server built on openraft and HTTP."""

    name = "openraft-http"
    count = 3

    def __init__(self, means):
        super().__init__(means)
        ports = free_ports(2 * self.count - 1)
        self.client, self.listening = ports[: self.count], ports[self.count :]

    def command(self, number):
        command = [str(self.means.peers), "openraft-server", "--node", str(number)]
        command += ["--clients", f"127.0.0.1:{self.client[number]}", "--log", "stored"]
        # The first process connects to the others, which must listen before it starts.
        others = [f"127.0.0.1:{port}" for port in self.listening]
        return command + (["--listen", others[number - 1]] if number else ["--others", ",".join(others)])

    def start_all(self):
        for number in (1, 2, 0):
            self.start(number)
            until(f"a server of {self.name}", lambda: self.serves(number))  # noqa: B023

    def serves(self, number):
        if self.processes[number].poll() is not None:
            raise SystemExit(f"a server of {self.name} has ended with {self.processes[number].returncode}")
        try:
            socket.create_connection(("127.0.0.1", self.client[number]), timeout=2).close()
            return True
        except OSError:
            return False

    def stop(self):
        self.processes = [process for process in self.processes if process]
        super().stop()

    def version(self):
        return ""

    def target(self):
        return by_http(leader_first(self.client, 0))

    def target_at_leader(self):
        return by_http(leader_alone(self.client, 0))


def by_http(told):
    """Returns the arguments with the servers for loads over HTTP."""
    return ["--server", *told[1:]]


SYSTEMS = {system.name: system for system in (Lockgate, ZooKeeper, Etcd, Redis, RedLock, OpenraftHttp)}
