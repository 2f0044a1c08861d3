"""Parts of the suite: a cluster of three processes, a proxy between client and node, and a driver process. `behaviours.py` uses them."""

import http.client
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request

NICE = ["nice", "-n", "19"]
#: Longest wait for anything that should happen soon. The machine may be busy.
SOON = 30.0


#: Settings of the nodes on a machine that has other work: elections are not begun because a process was not scheduled.
BUSY = {
    "LOCKGATE_RAFT_HEARTBEAT_MS": "250",
    "LOCKGATE_RAFT_ELECTION_MIN_MS": "1250",
    "LOCKGATE_RAFT_ELECTION_MAX_MS": "2500",
    "LOCKGATE_SESSIONS_MIN_MS": "5000",
    "LOCKGATE_DISK_STALL_MS": "6000",
}

CLIENTS = pathlib.Path(__file__).resolve().parent.parent


def find_drivers():
    """Returns the command, and its directory, of every client."""
    found = {}
    for path in sorted(CLIENTS.glob("*/conformance.json")):
        for name, command in json.loads(path.read_text())["drivers"].items():
            found[name] = (command, path.parent)
    return found


def build(names, drivers):
    for directory in {drivers[name][1] for name in names}:
        command = json.loads((directory / "conformance.json").read_text()).get("build")
        if command:
            subprocess.run(command, cwd=directory, check=True)


class Failure(Exception):
    """A client did not do what it must."""


def check(condition, text):
    if not condition:
        raise Failure(text)


def until(condition, text, timeout=SOON):
    """Waits for a condition, and returns its value."""
    end = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        check(time.monotonic() < end, f"not within {timeout:g} s: {text}")
        time.sleep(0.02)


class Cluster:
    """Three nodes of a given program."""

    def __init__(self, program, directory, *options):
        """`options` are those of `cluster up`, and settings of the nodes as `NAME=VALUE`."""
        self.program, self.directory = program, pathlib.Path(directory)
        self.settings = dict(option.split("=", 1) for option in options if "=" in option)
        options = [option for option in options if "=" not in option]
        self.tls = None
        self.admin_token = None
        self.up("--ephemeral-ports", *options)
        config = (self.directory / "node-1/config.toml").read_text()
        found = re.findall(r'\[members\.(\d+)\]\npeer = "[^"]*"\nhttp = "([^"]*)"', config)
        self.servers = [address for _, address in sorted(found)]
        if "--tls" in options:
            self.tls = ssl.create_default_context(cafile=str(self.ca_file))
        if "--secure" in options:
            self.admin_token = (self.directory / "admin.token").read_text().strip()

    @property
    def ca_file(self):
        return self.directory / "ca.pem"

    def up(self, *options):
        """Starts the nodes that do not run."""
        environment = {**os.environ, **self.settings}
        # A busy machine may need longer to start the nodes than the command waits.
        for _ in range(5):
            command = [*NICE, self.program, "cluster", "up", "--dir", str(self.directory), *options]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
            if done.returncode == 0:
                return
            options = ()
        raise RuntimeError(f"the cluster does not start: {done.stderr}")

    def down(self):
        subprocess.run([self.program, "cluster", "down", "--dir", str(self.directory)], capture_output=True, timeout=60)
        shutil.rmtree(self.directory, ignore_errors=True)

    def pid(self, node):
        return int((self.directory / f"node-{node}/pid").read_text())

    def signal(self, node, number):
        os.kill(self.pid(node), number)

    def api(self, method, path, body=None, node=None, timeout=20.0, tries=40, token=None):
        """Sends a request of the suite itself, to any node that answers. Returns status and document."""
        for attempt in itertools.count():
            address = self.servers[((node or 1) - 1 + (0 if node else attempt)) % 3]
            scheme = "https" if self.tls else "http"
            token = token or self.admin_token
            headers = {"authorization": f"Bearer {token}"} if token else {}
            data = None if body is None else json.dumps(body).encode()
            request = urllib.request.Request(f"{scheme}://{address}{path}", data, headers, method=method)
            try:
                with urllib.request.urlopen(request, timeout=timeout, context=self.tls) as answer:
                    text = answer.read()
                    return answer.status, json.loads(text) if text else {}
            except urllib.error.HTTPError as error:
                if error.code not in (503, 504) or attempt >= tries:
                    return error.code, json.loads(error.read() or b"{}")
            except (OSError, http.client.HTTPException):
                if attempt >= tries:
                    raise
            time.sleep(0.05)

    def leader(self):
        """Returns the node that leads."""

        def find():
            for node in (1, 2, 3):
                try:
                    status, found = self.api("GET", "/v1/cluster", node=node, timeout=3, tries=0)
                except (OSError, http.client.HTTPException):
                    continue
                if status == 200 and found.get("leader"):
                    return found["leader"] if isinstance(found["leader"], int) else found["leader"]["node_id"]
            return None

        return until(find, "a leader is elected")

    def lock(self, name):
        """Returns holders and queue of a lock."""
        status, found = self.api("GET", f"/v1/locks/{name.replace('/', '%2F')}?linearizable=true")
        return found if status == 200 else {"holders": [], "queue": []}

    def has(self, path):
        """Whether the API of the nodes has this path."""
        return path in self.api("GET", "/v1/openapi.json")[1]["paths"]

    def session(self, ttl_ms=60_000):
        """Opens a session of the suite itself."""
        return self.api("POST", "/v1/sessions", {"ttl_ms": ttl_ms, "name": "suite"})[1]["session"]

    def acquire(self, session, name, wait_ms=0, **fields):
        body = {"session": session, "wait_ms": wait_ms, "request_id": os.urandom(8).hex(), **fields}
        return self.api("POST", f"/v1/locks/{name.replace('/', '%2F')}/acquire", body, timeout=120)

    def break_holder(self, name, reason="stuck"):
        for holder in self.lock(name)["holders"]:
            body = {"holder": holder["holder"], "reason": reason}
            self.api("POST", f"/v1/locks/{name.replace('/', '%2F')}/break", body)


class Request:
    """Request that a proxy has seen."""

    def __init__(self, proxy, head, body):
        line, *rest = head.decode("latin-1").split("\r\n")
        self.proxy, self.at = proxy, time.monotonic()
        self.method, self.path = line.split(" ")[:2]
        self.headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in rest if each)}
        self.raw = head + b"\r\n\r\n" + body
        try:
            self.body = json.loads(body) if body else {}
        except ValueError:
            self.body = {}
        self.answered_at = None

    @property
    def id(self):
        found = re.search(r"request_id=([^&]+)", self.path)
        return self.body.get("request_id") or self.headers.get("idempotency-key") or (found and found.group(1))

    def is_(self, verb, method="POST"):
        """Whether the last part of the path is this verb."""
        return self.method == method and self.path.partition("?")[0].endswith("/" + verb)


class Proxy:
    """TCP proxy before one node, which understands requests and can do what networks do to them."""

    def __init__(self, target):
        host, port = target.rsplit(":", 1)
        self.target = (host, int(port))
        self.requests = []
        self.rules = []
        self.stalled = threading.Event()
        self.is_cut = False
        self.delay = 0.0
        self.opened = 0
        self._open = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def rule(self, matches, action, times=1):
        """Applies an action to the next requests that match: `drop` the request's answer and connection, `hold` it for ever, or a function
        of the request that returns the bytes of an answer."""
        self.rules.append([matches, action, times])

    def cut(self):
        """Closes all connections, and refuses new ones."""
        self.is_cut = True
        with self._lock:
            opened, self._open = self._open, set()
        for sock in opened:
            _shut(sock)

    def mend(self):
        self.is_cut = False
        self.stalled.clear()

    def close(self):
        self.closed = True
        self.stalled.clear()
        self._listener.close()
        self.cut()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.opened += 1
            if self.is_cut:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                client.close()
                continue
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        try:
            server = socket.create_connection(self.target, timeout=5)
        except OSError:
            _shut(client)
            return
        server.settimeout(None)
        with self._lock:
            self._open |= {client, server}
        state = {"drop": False, "last": None}
        threading.Thread(target=self._back, args=(server, client, state), daemon=True).start()
        buffer = b""
        try:
            while True:
                piece = client.recv(65536)
                self._pause()
                if not piece or self.closed:
                    break
                buffer += piece
                buffer = self._forward(buffer, client, server, state)
        except OSError:
            pass
        _shut(server)
        _shut(client)

    def _pause(self):
        while self.stalled.is_set() and not self.closed:
            time.sleep(0.01)

    def _forward(self, buffer, client, server, state):
        while b"\r\n\r\n" in buffer:
            head, _, rest = buffer.partition(b"\r\n\r\n")
            found = re.search(rb"(?i)content-length: *(\d+)", head)
            length = int(found.group(1)) if found else 0
            if len(rest) < length:
                return buffer
            request = Request(self, head, rest[:length])
            buffer = rest[length:]
            self.requests.append(request)
            state["last"] = request
            action = self._action(request)
            if action == "hold":
                continue
            if callable(action):
                request.answered_at = time.monotonic()
                client.sendall(action(request))
                continue
            state["drop"] = action == "drop"
            server.sendall(request.raw)
        return buffer

    def _action(self, request):
        for rule in self.rules:
            if rule[2] > 0 and rule[0](request):
                rule[2] -= 1
                return rule[1]
        return None

    def _back(self, server, client, state):
        try:
            while True:
                piece = server.recv(65536)
                if self.delay:
                    time.sleep(self.delay)
                self._pause()
                if not piece or state["drop"] or self.closed:
                    break
                client.sendall(piece)
                if state["last"] is not None:
                    state["last"].answered_at = time.monotonic()
        except OSError:
            pass
        _shut(client)
        _shut(server)


def _shut(sock):
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    sock.close()


class CommandError(Exception):
    """Error reply of a driver."""

    def __init__(self, error):
        super().__init__(json.dumps(error))
        self.kind, self.code = error.get("kind"), error.get("code")
        self.reason, self.by, self.detail = error.get("reason"), error.get("by"), error.get("detail")
        self.message = error.get("message", "")


class Driver:
    """Process of a client."""

    def __init__(self, command, directory, log):
        self.lines, self._replies, self._numbers = [], {}, itertools.count(1)
        self._news = threading.Condition()
        self.log = open(log, "ab")  # noqa: SIM115
        self.process = subprocess.Popen(
            [*NICE, *command], cwd=directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, bufsize=1
        )
        threading.Thread(target=self._read, daemon=True).start()
        self.ready = self.event("ready")

    def _read(self):
        for text in self.process.stdout:
            line = json.loads(text)
            line["at"] = time.monotonic()
            with self._news:
                if "id" in line:
                    self._replies[line["id"]] = line
                else:
                    self.lines.append(line)
                self._news.notify_all()

    def start(self, do, **fields):
        """Sends a command, and returns its number."""
        number = next(self._numbers)
        fields = {"as" if name == "as_" else "raise" if name == "raise_" else name: value for name, value in fields.items()}
        self.process.stdin.write(json.dumps({"id": number, "do": do, **fields}) + "\n")
        self.process.stdin.flush()
        return number

    def reply(self, number, timeout=SOON):
        """Waits for the reply to a command."""
        with self._news:
            if not self._news.wait_for(lambda: number in self._replies, timeout):
                raise Failure(f"command {number} has no reply after {timeout:g} s")
            line = self._replies[number]
        if "error" in line:
            raise CommandError(line["error"])
        return line["ok"]

    def replied(self, number):
        return number in self._replies

    def do(self, do, timeout=SOON, **fields):
        return self.reply(self.start(do, **fields), timeout)

    def fails(self, kind, do, timeout=SOON, **fields):
        """Sends a command that must fail in this way."""
        try:
            answer = self.do(do, timeout, **fields)
        except CommandError as error:
            check(error.kind == kind, f"{do} failed with {error}, not with {kind}")
            return error
        raise Failure(f"{do} succeeded with {answer}, and must fail with {kind}")

    def event(self, event, timeout=SOON, after=0.0, **fields):
        """Waits for an event with these fields."""
        fields = {"as" if name == "as_" else name: value for name, value in fields.items()}

        def find():
            for line in list(self.lines):
                if line.get("event") == event and line["at"] > after and all(line.get(k) == v for k, v in fields.items()):
                    return line
            return None

        with self._news:
            if not self._news.wait_for(lambda: find() is not None, timeout):
                raise Failure(f"no event {event} {fields} in {timeout:g} s; the last ones: {self.lines[-5:]}")
            return find()

    def events(self, event):
        return [line for line in self.lines if line.get("event") == event]

    def finish(self, timeout=SOON):
        """Ends stdin, and waits for the end of the process."""
        self.process.stdin.close()
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise Failure(f"the driver does not end {timeout:g} s after stdin") from None

    def kill(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        self.log.close()
