"""Cluster in memory, for the tests of programs that use this package. Gates are the real ones, over a transport that goes nowhere:

    cluster = FakeCluster()
    gate = cluster.gate()               # or cluster.async_gate()
    with gate.lock("orders/42") as lock:
        cluster.break_lock("orders/42", reason="test")
        assert lock.lost.wait(1)

It keeps the rules of locks, sessions, leases and simple znodes. Sessions end when they are closed or by `expire_sessions()`; time ends none.
It has no access control, no quotas, and no failures of servers."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any, Callable, Dict, List, Optional, Tuple
from urllib.parse import parse_qs, unquote, urlsplit

from . import aio
from ._engine import Call
from ._http import Answer, Request
from ._sync import Gate

Json = Dict[str, Any]
_LEASE_SESSION = "lease:"


class _Problem(Exception):
    def __init__(self, status: int, code: str, detail: str) -> None:
        self.answer = Answer(status, {}, json.dumps({"code": code, "detail": detail, "status": status}).encode())


class _Contender:
    def __init__(self, number: int, lock: str, wanted: Json) -> None:
        self.holder = f"h{number}"
        self.lock = lock
        self.session: str = wanted["session"]
        self.owner: str = wanted.get("owner", "")
        self.note: str = wanted.get("note", "")
        self.mode: str = wanted.get("mode", "exclusive")
        self.limit: Optional[int] = wanted.get("limit")
        self.permits: int = wanted.get("permits", 1)
        self.ttl_ms: int = wanted.get("ttl_ms", 0)
        self.token = 0
        self.entries = 0
        self.upgrading = False

    def view(self) -> Json:
        return {
            "lock": self.lock,
            "mode": self.mode,
            "holder": self.holder,
            "session": self.session,
            "owner": self.owner,
            "note": self.note,
            "fencing_token": self.token,
            "holds": self.entries,
            "permits": self.permits,
        }


class _Call:
    """Contenders of one acquire, which are granted together."""

    def __init__(self, contenders: List[_Contender]) -> None:
        self.contenders = contenders
        self.changed = asyncio.Event()


class FakeCluster:
    """Cluster in memory. Its methods may be called from every thread."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._zxid = 0
        self._sessions: Dict[str, List["_Stream"]] = {}
        self._ttl: Dict[str, int] = {}
        self._holders: Dict[str, List[_Contender]] = {}
        self._queue: List[_Call] = []
        self._requests: Dict[Tuple[str, str], Any] = {}
        self._znodes: Dict[str, Json] = {"/": {"data": "", "version": 0, "mzxid": 0, "session": None}}
        self._watchers: List[Tuple[str, "asyncio.Event"]] = []

    def gate(self, **options: Any) -> Gate:
        """Returns a gate to this cluster. Each has a session of its own."""
        return Gate("fake:1", transport=self, **options)

    def async_gate(self, **options: Any) -> aio.Gate:
        """Returns a gate for asyncio to this cluster."""
        return aio.Gate("fake:1", transport=self, **options)

    def break_lock(self, name: str, reason: str = "") -> None:
        """Takes a lock from its holders."""

        def break_all() -> None:
            for each in list(self._holders.get(name, [])):
                self._end(each, "broken", "test", reason)

        self._in_loop(break_all)

    def request_release(self, name: str, reason: str = "") -> None:
        """Asks the holders of a lock to release it."""
        self._in_loop(lambda: self._request_release(name, reason))

    def expire_sessions(self) -> None:
        """Ends all sessions, as if no heartbeat had arrived for their TTL."""

        def expire_all() -> None:
            for each in list(self._sessions):
                self._end_session(each, "session_expired")

        self._in_loop(expire_all)

    def _in_loop(self, function: Callable[[], None]) -> None:
        async def run() -> None:
            function()
            self._grant()

        Call(run(), None).result()

    # The transport.

    async def send(self, server: str, request: Request) -> Answer:
        """Answers a request."""
        return await self._answer(request)

    async def _answer(self, request: Request) -> Answer:
        url = urlsplit(request.path)
        parts = [unquote(part) for part in url.path.split("/")[2:]]
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        body = json.loads(request.body) if request.body else {}
        try:
            answer = await self._route(request.method, parts, query, body)
        except _Problem as problem:
            return problem.answer
        return Answer(200, {}, b"" if answer is None else json.dumps(answer).encode())

    async def stream(self, server: str, request: Request) -> "_Stream":
        """Opens the event stream of a session."""
        session = urlsplit(request.path).path.split("/")[3]
        self._alive(session)
        stream = _Stream()
        self._sessions[session].append(stream)
        held = [each.view() for holders in self._holders.values() for each in holders if each.session == session]
        stream.say("state", {"zxid": self._zxid, "held": held, "awaited": [], "release_requested": []})
        return stream

    def close(self) -> None:
        """Nothing is open."""

    async def _route(self, method: str, parts: List[str], query: Json, body: Json) -> Any:
        kind, verb = parts[0], parts[-1]
        if kind == "sessions":
            return self._session(method, parts, body)
        if kind == "leases":
            return self._lease(method, parts, body)
        if kind in ("locks", "multilock"):
            return await self._lock(method, parts, verb, query, body)
        if kind == "znodes":
            return self._znode(method, "/" + "/".join(part for part in parts[1:] if part), query, body)
        if kind == "watch":
            return await self._watch("/" + "/".join(parts[1:]), float(query.get("timeout_ms", 0)) / 1000)
        if kind == "batch":
            return {"results": [await self._one(each) for each in body["requests"]]}
        if kind == "txn":
            return self._transaction(body)
        raise _Problem(404, "no_route", "the fake has no such route")

    async def _one(self, each: Json) -> Json:
        """Returns the result of one request of a batch."""
        body = json.dumps(each["body"]).encode() if "body" in each else b""
        answer = await self._answer(Request(each.get("method", "POST"), each["path"], body, {}))
        document = {"problem" if answer.status >= 400 else "body": json.loads(answer.body)} if answer.body else {}
        return {"status": answer.status, **document}

    # Sessions.

    def _alive(self, session: str) -> None:
        if session not in self._sessions:
            raise _Problem(410, "session_expired", "the session has ended")

    def _session(self, method: str, parts: List[str], body: Json) -> Any:
        if len(parts) == 1:
            session = f"s{next(self._numbers)}"
            self._sessions[session], self._ttl[session] = [], body.get("ttl_ms", 10_000)
            return {"session": session, "ttl_ms": self._ttl[session]}
        session = parts[1]
        if method == "DELETE" and session not in self._sessions:
            return None
        self._alive(session)
        if method == "DELETE":
            self._end_session(session, "session_closed")
            self._grant()
            return None
        held = [each.view() for holders in self._holders.values() for each in holders if each.session == session]
        return {"ttl_ms": self._ttl[session], "leads": True, "release_requested": [], "held": held, "complete": False}

    def _end_session(self, session: str, ended: str) -> None:
        streams = self._sessions.pop(session, [])
        for holders in list(self._holders.values()):
            for each in [each for each in holders if each.session == session]:
                self._end(each, ended, None, "")
        for call in [call for call in self._queue if call.contenders[0].session == session]:
            self._queue.remove(call)
            call.changed.set()
        for path in [path for path, znode in self._znodes.items() if znode["session"] == session]:
            self._remove(path)
        for stream in streams:
            stream.say("session_ended", {"reason": ended})

    def _say(self, session: str, event: str, data: Json) -> None:
        for stream in self._sessions.get(session, []):
            stream.say(event, data)

    # Locks.

    async def _lock(self, method: str, parts: List[str], verb: str, query: Json, body: Json) -> Any:
        name = parts[1]
        if method == "GET" and verb == "check":
            token = int(query["fencing_token"])
            return {"held": any(each.token == token for each in self._holders.get(name, []))}
        if method == "GET" and parts[2:3] == ["holders"]:
            return await self._poll(verb, float(query["wait_ms"]) / 1000)
        if method == "GET":
            waiting = [each for call in self._queue for each in call.contenders if each.lock == name]
            return {"lock": name, "holders": [e.view() for e in self._holders.get(name, [])], "queue": [e.view() for e in waiting]}
        if verb == "acquire":
            return await self._acquire(parts, body)
        if verb == "release-request":
            self._request_release(name, body["reason"])
        elif verb == "break":
            self._end(self._find(body["holder"]), "broken", "test", body["reason"])
            self._grant()
        elif verb == "upgrade":
            return await self._upgrade(self._find(body["holder"]), body["wait_ms"])
        elif verb == "downgrade":
            contender = self._find(body["holder"])
            contender.mode = body.get("mode", "shared")
            self._grant()
            return contender.view()
        elif verb == "release":
            wanted = body.get("holders") or [{"lock": name, "holder": body["holder"]}]
            released = [self._release(each) for each in wanted]
            self._grant()
            if all(each["holds"] is None for each in released):
                raise _Problem(409, "not_holder", "the lock is not held")
            return {"released": released} if "holders" in body else released[0]
        return None

    def _find(self, holder: str) -> _Contender:
        for holders in self._holders.values():
            for each in holders:
                if each.holder == holder:
                    return each
        raise _Problem(409, "not_holder", "the lock is not held")

    def _request_release(self, name: str, reason: str) -> None:
        for each in self._holders.get(name, []):
            asked = {"lock": name, "holder": each.holder, "by": "test", "reason": reason, "requested_at": str(next(self._numbers))}
            self._say(each.session, "release_requested", asked)

    async def _acquire(self, parts: List[str], body: Json) -> Any:
        many = parts[0] == "multilock"
        lease = "session" not in body
        session = body.setdefault("session", _LEASE_SESSION + str(next(self._numbers)))
        if not lease:
            self._alive(session)
        key = ("" if lease else session, body["request_id"])
        call = self._requests.get(key)
        if call is None:
            wanted = body["locks"] if many else [{**body, "name": parts[1]}]
            contenders = [self._contender({**body, **each}) for each in wanted]
            call = self._requests[key] = _Call(contenders)
            self._queue.append(call)
            self._grant()
        session = call.contenders[0].session
        if call in self._queue and body.get("wait") == "queue":
            return self._place(call)
        try:
            timeout = body.get("wait_ms")
            while call in self._queue and timeout != 0:
                await asyncio.wait_for(call.changed.wait(), None if timeout is None else timeout / 1000)
        except (asyncio.TimeoutError, asyncio.CancelledError) as ended:
            self._leave(call)
            if isinstance(ended, asyncio.CancelledError):
                raise
        if not all(each.token for each in call.contenders):
            self._leave(call)
            if not lease:
                self._alive(session)
            code = "lock_timeout" if timeout else "lock_busy"
            raise _Problem(409, code, "the lock is not free")
        grants = [each.view() for each in call.contenders]
        if many:
            return {"holders": grants}
        return {**grants[0], "lease": session, "expires_in_ms": body["ttl_ms"]} if lease else grants[0]

    def _place(self, call: _Call) -> Json:
        contender = call.contenders[0]
        lease = {"lease": contender.session, "expires_in_ms": contender.ttl_ms}
        return {"lock": contender.lock, "holder": contender.holder, "position": self._queue.index(call) + 1, **lease}

    async def _poll(self, holder: str, timeout: float) -> Any:
        """Waits for a contender in the queue to be granted its lock."""
        call = next((call for call in self._queue if call.contenders[0].holder == holder), None)
        if call is not None:
            try:
                await asyncio.wait_for(call.changed.wait(), timeout)
            except asyncio.TimeoutError:
                return None
        try:
            return self._find(holder).view()
        except _Problem:
            raise _Problem(410, "holder_gone", "the contender is gone") from None

    def _contender(self, wanted: Json) -> _Contender:
        name = wanted["name"]
        if wanted.get("reentrant"):
            for each in self._holders.get(name, []):
                if (each.session, each.owner) == (wanted["session"], wanted.get("owner", "")):
                    return each
        return _Contender(next(self._numbers), name, wanted)

    def _leave(self, call: _Call) -> None:
        if call in self._queue:
            self._queue.remove(call)
            self._grant()

    def _grant(self) -> None:
        """Grants in the order of the queue: nobody overtakes a waiting call for the same lock."""
        blocked = {each.lock for holders in self._holders.values() for each in holders if each.upgrading}
        for holders in self._holders.values():
            for each in holders:
                if each.upgrading and len(holders) == 1:
                    each.mode, each.upgrading = "exclusive", False
                    each.token = self._next_zxid()
        for call in list(self._queue):
            locks = {each.lock for each in call.contenders}
            if locks & blocked or not all(each.token or self._fits(each) for each in call.contenders):
                blocked |= locks
                continue
            self._queue.remove(call)
            token = self._next_zxid()
            for each in call.contenders:
                if not each.token:
                    each.token = token
                    self._holders.setdefault(each.lock, []).append(each)
                each.entries += 1
            call.changed.set()

    def _fits(self, wanted: _Contender) -> bool:
        holders = self._holders.get(wanted.lock, [])
        if wanted.mode == "semaphore":
            limit = wanted.limit or next((each.limit for each in holders if each.limit), 1)
            return sum(each.permits for each in holders) + wanted.permits <= limit
        beside = {"exclusive": (), "shared": ("shared", "upgradeable"), "upgradeable": ("shared",)}[wanted.mode]
        return all(each.mode in beside for each in holders)

    def _next_zxid(self) -> int:
        self._zxid += 1
        return self._zxid

    def _release(self, wanted: Json) -> Json:
        try:
            contender = self._find(wanted["holder"])
        except _Problem:
            return {**wanted, "holds": None}
        contender.entries -= 1
        if contender.entries == 0:
            self._holders[contender.lock].remove(contender)
        return {**wanted, "holds": contender.entries}

    def _end(self, contender: _Contender, ended: str, by: Optional[str], reason: str) -> None:
        self._holders[contender.lock].remove(contender)
        contender.token = 0
        self._say(contender.session, "lost", {**contender.view(), "ended": ended, "by": by, "reason": reason})

    async def _upgrade(self, contender: _Contender, wait_ms: Optional[int]) -> Json:
        contender.upgrading = contender.mode != "exclusive"
        self._grant()
        until = None if wait_ms is None else asyncio.get_running_loop().time() + wait_ms / 1000
        while contender.upgrading:
            if until is not None and asyncio.get_running_loop().time() >= until:
                contender.upgrading = False
                raise _Problem(409, "lock_timeout" if wait_ms else "lock_busy", "there are readers")
            await asyncio.sleep(0.005)
        return contender.view()

    def _lease(self, method: str, parts: List[str], body: Json) -> Any:
        waiting = [each for call in self._queue for each in call.contenders]
        for each in [*waiting, *(each for holders in self._holders.values() for each in holders)]:
            if each.session == parts[1]:
                if method == "DELETE":
                    self._end_session(each.session, "session_closed")
                    self._grant()
                    return None
                each.ttl_ms = body.get("ttl_ms", each.ttl_ms)
                found = {"lock": each.lock, "holder": each.holder, "fencing_token": each.token or None, "note": each.note}
                return {**found, "state": "holds" if each.token else "waits", "ttl_ms": each.ttl_ms, "expires_in_ms": each.ttl_ms}
        if method == "DELETE":
            return None
        raise _Problem(410, "lease_expired", "the lease has ended")

    # Znodes.

    def _znode(self, method: str, path: str, query: Json, body: Json) -> Any:
        if method == "POST":
            return self._create({**body, "path": path})
        if path not in self._znodes:
            raise _Problem(404, "no_znode", f"there is no znode {path}")
        znode = self._znodes[path]
        if method == "GET":
            children = [{"name": name} for name in self._children(path)]
            return {**self._stat(path), "data": znode["data"], "path": path, "children": children, "next_after": None}
        if query.get("version", "-1") not in ("-1", str(znode["version"])):
            raise _Problem(409, "bad_version", f"the version is {znode['version']}")
        if method == "PUT":
            znode.update(data=body.get("data", ""), version=znode["version"] + 1, mzxid=self._next_zxid())
            self._changed(path)
            return self._stat(path)
        if self._children(path) and "recursive" not in query:
            raise _Problem(409, "not_empty", f"the znode {path} has children")
        self._remove(path)
        return None

    def _children(self, path: str) -> List[str]:
        below = path.rstrip("/") + "/"
        return [each[len(below) :] for each in self._znodes if each.startswith(below) and each != "/" and "/" not in each[len(below) :]]

    def _stat(self, path: str) -> Json:
        znode = self._znodes[path]
        return {"stat": {"version": znode["version"], "mzxid": znode["mzxid"], "pzxid": znode["mzxid"]}}

    def _create(self, body: Json) -> Json:
        path, mode = body["path"], body.get("mode", "persistent")
        if mode.endswith("sequential"):
            path += f"{next(self._numbers):010d}"
        parent = path.rpartition("/")[0] or "/"
        if path in self._znodes:
            raise _Problem(409, "node_exists", f"the znode {path} exists")
        if parent not in self._znodes:
            if not body.get("parents"):
                raise _Problem(404, "no_znode", f"there is no znode {parent}")
            self._create({"path": parent, "parents": True})
        session = body.get("session") if mode.startswith("ephemeral") else None
        self._znodes[path] = {"data": body.get("data", ""), "version": 0, "mzxid": self._next_zxid(), "session": session}
        self._changed(path)
        return {"path": path, **self._stat(path)}

    def _remove(self, path: str) -> None:
        for each in [each for each in self._znodes if each == path or each.startswith(path + "/")]:
            del self._znodes[each]
            self._changed(each)

    def _changed(self, path: str) -> None:
        for watched, changed in self._watchers:
            if watched in (path, path.rpartition("/")[0]):
                changed.set()

    async def _watch(self, path: str, timeout: float) -> Optional[Json]:
        watcher = (path, asyncio.Event())
        self._watchers.append(watcher)
        try:
            await asyncio.wait_for(watcher[1].wait(), timeout)
            return {"event": "changed", "path": path, "zxid": self._zxid}
        except asyncio.TimeoutError:
            return None
        finally:
            self._watchers.remove(watcher)

    def _transaction(self, body: Json) -> Json:
        """Checks first, and applies then."""
        for each in body["ops"]:
            (kind, fields), *_ = each.items()
            if kind == "held":
                tokens = [holder.token for holder in self._holders.get(fields["lock"], [])]
                if fields["fencing_token"] not in tokens:
                    raise _Problem(409, "not_holder", "the lock is not held")
            elif kind != "create" and fields["path"] not in self._znodes:
                raise _Problem(404, "no_znode", f"there is no znode {fields['path']}")
        results = []
        for each in body["ops"]:
            (kind, fields), *_ = each.items()
            methods = {"create": "POST", "set": "PUT", "delete": "DELETE"}
            done = self._znode(methods[kind], fields["path"], {}, fields) if kind in methods else {}
            results.append({kind: done or {}})
        return {"results": results}


class _Stream:
    """Event stream of a fake session."""

    status = 200

    def __init__(self) -> None:
        self._blocks: "asyncio.Queue[Dict[str, str]]" = asyncio.Queue()

    def say(self, event: str, data: Json) -> None:
        self._blocks.put_nowait({"event": event, "data": json.dumps(data)})

    async def next(self) -> Dict[str, str]:
        return await self._blocks.get()

    async def body(self) -> bytes:
        return b""

    def close(self) -> None:
        """Nothing is open."""
