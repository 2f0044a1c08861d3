"""What a gate does, as coroutines of the engine: the session that is opened when it is needed, locks, leases, elections and znodes. `Gate`
of this package and of `lockgate.aio` are two faces of it."""

from __future__ import annotations

import asyncio
import atexit
import collections
import logging
import math
import os
import ssl
import time
import weakref
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union
from urllib.parse import quote, urlencode

from . import _names as names
from ._acquire import Acquire, explained, grants_of
from ._engine import Call
from ._http import Http
from ._life import Hold, Margin
from ._servers import Servers, StartSpan, Token, call, request_id, segment
from ._session import Session
from .errors import GateClosed, LockgateError, LockLost, Loss, Refused

log = logging.getLogger("lockgate")

#: How long the record of a hand-over is kept if the named candidate never leads.
_HAND_OVER_TTL_MS = 30_000

#: Time after which an observer of an election looks for the leader, whether or not a watch has fired, in seconds.
_LOOK_EVERY = 1.0

Json = Dict[str, Any]


@dataclass(frozen=True)
class Options:
    """Options of a gate. Times are in seconds."""

    servers: Sequence[str]
    #: time after which the cluster gives the locks of a silent process to others
    ttl: float = 10.0
    #: text shown to people who look at the session
    name: Optional[str] = None
    #: time for a call at all servers together, beside a wait
    patience: float = 10.0
    #: prefer the server that leads
    at_leader: bool = False
    #: token, or provider that is asked whenever a session is opened
    token: Token = field(default=None, repr=False)
    ca_file: Optional[str] = None
    cert_file: Optional[str] = None
    key_file: Optional[str] = None
    #: `traceparent` of requests, or a function that returns it in the context of the caller
    traceparent: Union[str, Callable[[], Optional[str]], None] = None
    #: called after each request with operation, outcome and seconds
    on_request: Optional[Callable[[str, str, float], None]] = None
    #: begins a span of OpenTelemetry for a request, whose operation it is called with
    start_span: Optional[StartSpan] = None
    margin: Margin = field(default_factory=Margin)
    connect_timeout: float = 2.0


@dataclass(frozen=True)
class Wanted:
    """Locks of one acquire, and how they are wanted."""

    locks: Tuple[Json, ...]
    owner: Optional[str] = None
    extra: Json = field(default_factory=dict)

    @classmethod
    def one(
        cls,
        name: str,
        mode: str = "exclusive",
        limit: Optional[int] = None,
        permits: Optional[int] = None,
        owner: Optional[str] = None,
        note: Optional[str] = None,
        lock_delay: Optional[float] = None,
        min_hold: Optional[float] = None,
        max_hold: Optional[float] = None,
        poll: bool = False,
    ) -> "Wanted":
        lock = {"name": name, "mode": mode, "limit": limit, "permits": permits}
        extra = {"note": note, "lock_delay_ms": _ms(lock_delay), "min_hold_ms": _ms(min_hold), "max_hold_ms": _ms(max_hold)}
        return cls((_present(lock),), owner, {**_present(extra), **({"wait": "queue"} if poll else {})})

    def request(self) -> Tuple[str, Json]:
        """Returns path and body of the acquire. Without an owner nothing is re-entered."""
        owner: Json = {} if self.owner is None else {"owner": self.owner}
        re_entry = {} if self.locks[0]["mode"] == "semaphore" else {"reentrant": self.owner is not None}
        if len(self.locks) == 1:
            lock = dict(self.locks[0])
            return f"/v1/locks/{segment(lock.pop('name'))}/acquire", {**lock, **owner, **re_entry, **self.extra}
        locks = [dict(lock, reentrant=self.owner is not None) if lock["mode"] != "semaphore" else lock for lock in self.locks]
        return "/v1/multilock/acquire", {"locks": locks, **owner, **self.extra}


def _ms(seconds: Optional[float]) -> Optional[int]:
    return None if seconds is None else max(1, round(seconds * 1000))


def _present(fields: Mapping[str, Any]) -> Json:
    return {name: value for name, value in fields.items() if value is not None}


def _query(**fields: Any) -> str:
    present = _present(fields)
    return "?" + urlencode({k: str(v).lower() if isinstance(v, bool) else v for k, v in present.items()}) if present else ""


def _addresses(servers: Union[str, Sequence[str]]) -> List[str]:
    listed = servers.split(",") if isinstance(servers, str) else list(servers)
    addresses = [address.strip().rpartition("//")[2].rstrip("/") for address in listed]
    if not addresses or not all(":" in address for address in addresses):
        raise ValueError(f"servers are HOST:PORT, not {servers!r}")
    return addresses


class Core:
    """Engine side of one gate."""

    def __init__(self, options: Options, transport: Optional[Any] = None) -> None:
        self.options = options
        self.addresses = _addresses(options.servers)
        self.counts: "collections.Counter[str]" = collections.Counter()
        self.session: Optional[Session] = None
        self.closed = False
        self._position = names.POSITIONS[0]
        self._opening: Optional["asyncio.Lock"] = None
        self._servers: Optional[Servers] = None
        self._transport = transport
        _cores.add(self)

    @property
    def servers(self) -> Servers:
        if self.closed:
            raise GateClosed("the gate is closed")
        if self._servers is None:
            options = self.options
            http = self._transport or Http(options.connect_timeout, self._tls())
            traceparent = options.traceparent
            trace = traceparent if callable(traceparent) else lambda: traceparent
            self._servers = Servers(http, self.addresses, options.patience, options.token, trace, self._observe, options.start_span)
        return self._servers

    def _tls(self) -> Optional[ssl.SSLContext]:
        options = self.options
        if options.ca_file is None and options.cert_file is None:
            return None
        context = ssl.create_default_context(cafile=options.ca_file)
        if options.cert_file is not None:
            context.load_cert_chain(options.cert_file, options.key_file)
        return context

    def _observe(self, operation: str, outcome: str, seconds: float) -> None:
        self.counts["requests"] += 1
        self.counts[f"requests_{outcome}"] += 1
        if self.options.on_request is not None:
            try:
                self.options.on_request(operation, outcome, seconds)
            except Exception:
                log.exception("the callback for requests has failed")

    # Session.

    async def live_session(self) -> Session:
        """Returns the session. Opens one at the first call, and after a loss."""
        if self._opening is None:
            self._opening = asyncio.Lock()
        async with self._opening:
            session = self.session
            if session is not None and session.life.loss() is None:
                return session
            if session is not None and not self.closed:
                # The cluster may still have it: others need not wait for its end.
                self.servers.in_background("closing a lost session", session.close())
            options = self.options
            self.session = await Session.open(self.servers, options.ttl, options.name, options.margin, options.at_leader)
            self.counts["sessions_opened"] += 1
            if self.closed:
                await self.session.close()
                raise GateClosed("the gate is closed")
            return self.session

    async def close(self) -> None:
        """Closes the session. Calls that wait end with an error."""
        if self.closed:
            return
        self.closed = True
        session, servers = self.session, self._servers
        try:
            if session is not None:
                await session.close()
        finally:
            for some in (servers, session.servers if session else None):
                if some is not None:
                    some.closed = True
            if servers is not None:
                while servers.tasks:
                    await asyncio.wait(list(servers.tasks))
                servers.http.close()

    # Locks.

    async def acquire(self, wanted: Wanted, wait: Optional[float]) -> List[Hold]:
        """Acquires the locks, in whatever session lives then: the loss of one in which nothing is held yet is nobody's concern."""
        until = None if wait is None else time.monotonic() + wait
        path, body = wanted.request()
        while True:
            session = await self.live_session()
            left = until if until is None else max(0.0, until - time.monotonic())
            request = {**body, "session": session.id}

            async def give_back(granted: Json, session: Session = session) -> None:
                await self._release(session, grants_of(granted))

            waiting = Acquire(session.servers, session.life, path, request, left, give_back)
            try:
                granted = await waiting.run()
            except LockLost as lost:
                if self.closed or lost.loss.reason == "closed" or (until is not None and time.monotonic() >= until):
                    raise
                continue
            except Refused as refusal:
                session.ended(refusal)
                if refusal.ends_session and (until is None or time.monotonic() < until):
                    continue
                raise
            self.counts["acquired"] += 1
            holds = [session.enter(grant, wanted.owner) for grant in grants_of(granted)]
            for hold in holds:
                if hold.entries == 1:
                    hold.on_lost(self._count_loss)
            return holds

    def _count_loss(self, loss: Loss) -> None:
        self.counts["lost"] += loss.reason != "closed"

    async def release(self, holds: List[Hold]) -> None:
        """Releases one entry of each. Raises [`LockLost`][lockgate.LockLost] if one was lost before."""
        lost = [loss for loss in (hold.loss() for hold in holds) if loss is not None]
        for hold in holds:
            hold.life.leave(hold)
        session = self.session
        alive = [hold for hold in holds if hold.loss() is None]
        if alive and session is not None and session.life is alive[0].life:
            try:
                await self._release(session, [{"lock": hold.lock, "holder": hold.holder} for hold in alive])
            except LockgateError as error:
                raise await explained(session.life, alive[0].holder, error) from error
        if lost:
            raise LockLost(lost[0])

    async def _release(self, session: Session, grants: List[Json]) -> None:
        body: Json = {"session": session.id, "request_id": request_id()}
        if len(grants) == 1:
            path = f"/v1/locks/{segment(grants[0]['lock'])}/release"
            body["holder"] = grants[0]["holder"]
        else:
            path = "/v1/multilock/release"
            body["holders"] = [{"lock": grant["lock"], "holder": grant["holder"]} for grant in grants]
        released = await self._of_session(session, call("POST", path, body))
        if any(entry["holds"] is None for entry in released.get("released", [])):
            raise Refused("not_holder", "one of the locks was lost before")

    async def _of_session(self, session: Session, request: Any) -> Json:
        """Sends a request about a hold: for the patience, or for as long as the session may live without a heartbeat."""
        try:
            answer: Json = await session.servers.ask(request, max(session.life.ttl, session.servers.patience))
            return answer
        except Refused as refusal:
            session.ended(refusal)
            raise

    def _session_of(self, hold: Hold) -> Session:
        loss = hold.loss()
        if loss is not None or self.session is None or self.session.life is not hold.life:
            raise LockLost(loss or Loss("closed"))
        return self.session

    async def upgrade(self, hold: Hold, wait: Optional[float]) -> None:
        session = self._session_of(hold)
        body = {"session": session.id, "holder": hold.holder}
        path = f"/v1/locks/{segment(hold.lock)}/upgrade"

        async def give_back(_: Json) -> None:
            await self.downgrade(hold, "upgradeable")

        try:
            self._changed(hold, await Acquire(session.servers, session.life, path, body, wait, give_back).run())
        except Refused as refusal:
            session.ended(refusal)
            raise await explained(session.life, hold.holder, refusal) from refusal

    async def downgrade(self, hold: Hold, mode: str) -> None:
        session = self._session_of(hold)
        body = {"session": session.id, "holder": hold.holder, "mode": mode, "request_id": request_id()}
        try:
            request = call("POST", f"/v1/locks/{segment(hold.lock)}/downgrade", body)
            self._changed(hold, await self._of_session(session, request))
        except Refused as refusal:
            raise await explained(session.life, hold.holder, refusal) from refusal

    def _changed(self, hold: Hold, grant: Json) -> None:
        hold.mode, hold.token = grant["mode"], grant["fencing_token"]

    async def extend(self, hold: Hold) -> None:
        """Renews the session now."""
        await self._session_of(hold).beat()

    async def reply_release(self, hold: Hold, answer: str) -> None:
        session = self._session_of(hold)
        body = {"session": session.id, "holder": hold.holder, "answer": answer, "request_id": request_id()}
        await self._renamed(hold.lock, "release-request/reply", "revoke", body)

    async def request_release(self, lock: str, reason: str) -> None:
        await self._renamed(lock, "release-request", "revoke", {"reason": reason, "request_id": request_id()})

    async def _renamed(self, lock: str, now: str, before: str, body: Json) -> None:
        try:
            await self.servers.ask(call("POST", f"/v1/locks/{segment(lock)}/{now}", body))
        except Refused as refusal:
            if refusal.code not in names.NO_ROUTE:
                raise
            await self.servers.ask(call("POST", f"/v1/locks/{segment(lock)}/{before}", body))

    async def is_held(self, lock: str, token: int) -> bool:
        answer = await self.servers.ask(call("GET", f"/v1/locks/{segment(lock)}/check?fencing_token={token}"))
        return bool(answer["held"])

    async def inspect(self, lock: str) -> Json:
        """Returns holders and queue. A lock that nobody uses has neither."""
        try:
            found: Json = await self.servers.ask(call("GET", f"/v1/locks/{segment(lock)}?linearizable=true"))
            return found
        except Refused as refusal:
            if refusal.code != "no_lock":
                raise
            return {"lock": lock, "holders": [], "queue": []}

    async def break_lock(self, lock: str, reason: str, holder: Optional[str]) -> None:
        holders = [holder] if holder else [entry["holder"] for entry in (await self.inspect(lock))["holders"]]
        for each in holders:
            body = {"holder": each, "reason": reason, "request_id": request_id()}
            await self.servers.ask(call("POST", f"/v1/locks/{segment(lock)}/break", body))

    # Leases: locks without a session, which any process can renew and release.

    async def lease_acquire(self, wanted: Wanted, ttl: float, wait: Optional[float]) -> Json:
        """Returns the document of the grant, or, if `wanted` says so, of a place in the queue."""
        path, body = wanted.request()
        body["ttl_ms"] = _ms(ttl)
        body.pop("reentrant", None)

        async def give_back(granted: Json) -> None:
            await self.lease_release(granted["lease"])

        granted: Json = await Acquire(self.servers, None, path, body, wait, give_back).run()
        return granted

    async def lease_renew(self, lease: str, ttl: Optional[float]) -> Json:
        body = _present({"ttl_ms": _ms(ttl), "request_id": request_id()})
        renewed: Json = await self.servers.ask(call("POST", f"/v1/leases/{segment(lease)}/renew", body))
        return renewed

    async def lease_wait(self, lease: str, timeout: Optional[float]) -> Json:
        """Waits until a lease in the queue has its lock, and renews it meanwhile. Returns its state: without a token if the time is over."""
        until = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            renew_at = time.monotonic()
            state = await self.lease_renew(lease, None)
            renew_at += state["ttl_ms"] / 3000
            poll = f"/v1/locks/{segment(state['lock'])}/holders/{segment(state['holder'])}?wait_ms"
            granted = state["fencing_token"]
            while not granted and time.monotonic() < min(renew_at, until):
                try:
                    granted = await self.servers.poll(poll, min(renew_at, until) - time.monotonic())
                except Refused as refusal:
                    # The lease has ended with its place, as the renewal says.
                    granted = refusal.code == "holder_gone"
                    if not granted:
                        raise
            if state["fencing_token"] or (time.monotonic() >= until and not granted):
                return state

    async def lease_release(self, lease: str) -> None:
        await self.servers.ask(call("DELETE", f"/v1/leases/{segment(lease)}"))

    async def leases_acquire(self, names: List[str], ttl: float, note: Optional[str]) -> List[Any]:
        """Acquires locks without waiting. Returns documents and errors."""
        body = _present({"ttl_ms": _ms(ttl), "note": note, "wait_ms": 0, "retry": 0})
        requests = [{"path": f"/v1/locks/{segment(name)}/acquire", "body": {**body, "request_id": request_id()}} for name in names]
        acquired = asyncio.ensure_future(self.servers.batch(requests))

        async def give_back() -> None:
            await self.leases_release([grant["lease"] for grant in await acquired if isinstance(grant, dict)])

        try:
            return await asyncio.shield(acquired)
        except asyncio.CancelledError:
            self.servers.in_background("releasing leases", give_back())
            raise

    async def leases_renew(self, leases: List[str], ttl: Optional[float]) -> List[Any]:
        requests = []
        for lease in leases:
            body = _present({"ttl_ms": _ms(ttl), "request_id": request_id()})
            requests.append({"path": f"/v1/leases/{segment(lease)}/renew", "body": body})
        return await self.servers.batch(requests)

    async def leases_release(self, leases: List[str]) -> List[Any]:
        return await self.servers.batch([{"method": "DELETE", "path": f"/v1/leases/{segment(lease)}"} for lease in leases])

    async def lease_get(self, lease: str) -> Json:
        found: Json = await self.servers.ask(call("GET", f"/v1/leases/{segment(lease)}"))
        return found

    # Election: the holder of a lock leads. `write-a-client.md` has the record by which a leader names its successor.

    async def campaign(self, election: str, candidate: str, wait: Optional[float]) -> List[Hold]:
        until = None if wait is None else time.monotonic() + wait
        while True:
            left = until if until is None else max(0.0, until - time.monotonic())
            holds = await self.acquire(Wanted.one(election, note=candidate), left)
            try:
                leads = await self._leads(election, candidate)
            except BaseException:
                self.servers.in_background("resigning", self.release(holds))
                raise
            if leads:
                return holds
            await self.release(holds)

    async def _leads(self, election: str, candidate: str) -> bool:
        """Returns whether the granted lock is this candidate's, or that of another one to whom the leader before has handed over."""
        record = _election_znode(election)
        named = await self._missing_ok(self.get(record))
        if named is None:
            return True
        if named["data"] != candidate and named["data"] in [entry["note"] for entry in (await self.inspect(election))["queue"]]:
            return False
        await self._missing_ok(self.delete(record, None))
        return True

    async def _missing_ok(self, request: Any) -> Optional[Json]:
        try:
            found: Optional[Json] = await request
            return found
        except Refused as refusal:
            if refusal.code not in names.NO_ZNODE:
                raise
            return None

    async def hand_over(self, election: str, hold: Hold, to: str) -> None:
        self._session_of(hold)
        if to not in [entry["note"] for entry in (await self.inspect(election))["queue"]]:
            raise ValueError(f"no candidate {to!r} waits in the election {election!r}")
        record = _election_znode(election)
        try:
            await self.create(record, to, "ttl", _HAND_OVER_TTL_MS / 1000, True)
        except Refused as refusal:
            if refusal.code not in names.ZNODE_EXISTS:
                raise
            await self.set(record, to, None)
        await self.release([hold])

    async def leader(self, election: str) -> Optional[str]:
        holders = (await self.inspect(election))["holders"]
        return str(holders[0]["note"]) if holders else None

    async def next_leader(self, election: str, before: Optional[str], known: bool) -> Optional[str]:
        """Waits until the leader is another than `before`. Changes are watched, and looked for once a second."""
        path = f"/v1/watch/locks/{quote(election)}?kind=children&timeout_ms"
        while True:
            leads = await self.leader(election)
            if not known or leads != before:
                return leads
            try:
                await self.servers.poll(path, _LOOK_EVERY)
            except Refused as refusal:
                if refusal.code not in names.NO_ZNODE:
                    raise
                await asyncio.sleep(0.25)

    # Znodes.

    async def create(self, path: str, data: Union[str, bytes], mode: str, ttl: Optional[float], parents: bool) -> str:
        body: Json = {**_data(data), "mode": mode, "parents": parents, "request_id": request_id(), **_present({"ttl_ms": _ms(ttl)})}
        if mode.startswith("ephemeral"):
            body["session"] = (await self.live_session()).id
        return str((await self.servers.ask(call("POST", _znode(path), body)))["path"])

    async def get(self, path: str) -> Json:
        found: Json = await self.servers.ask(call("GET", _znode(path) + "?linearizable=true"))
        return found

    async def set(self, path: str, data: Union[str, bytes], version: Optional[int]) -> Json:
        body = {**_data(data), "request_id": request_id()}
        stat: Json = (await self.servers.ask(call("PUT", _znode(path) + _query(version=version), body)))["stat"]
        return stat

    async def delete(self, path: str, version: Optional[int], recursive: bool = False) -> None:
        query = _query(version=version, recursive=recursive or None, request_id=request_id())
        await self.servers.ask(call("DELETE", _znode(path) + query))

    async def children(self, path: str) -> List[str]:
        found: List[str] = []
        page: Json = {}
        while not page or names.next_page(page):
            query = _query(children=True, linearizable=True, **names.next_page(page))
            page = await self.servers.ask(call("GET", _znode(path) + query))
            found += [str(child["name"]) for child in page["children"]]
        return sorted(found)

    async def watch(self, path: str, kind: str, timeout: Optional[float], zxid: Optional[int]) -> Optional[Json]:
        """Waits for one change, over all servers. Returns `None` when the time is over."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            left = math.inf if until is None else until - time.monotonic()
            fields = {"kind": kind, self._position: zxid, "linearizable": True}
            try:
                event: Json = await self.servers.poll("/v1/watch" + quote(path) + _query(**fields) + "&timeout_ms", left)
            except Refused as refusal:
                if refusal.code != "bad_request" or zxid is None or self._position == names.POSITIONS[-1]:
                    raise
                self._position = names.POSITIONS[-1]
                continue
            if event:
                return event
            if until is not None and time.monotonic() >= until:
                return None

    async def transaction(self, operations: Iterable[Json], guards: Sequence[Hold]) -> List[Json]:
        """Applies all operations or none; with `guards` only while they hold."""
        held = [{"held": {"lock": hold.lock, "fencing_token": hold.token}} for hold in guards]
        body: Json = {"ops": [*held, *operations], "request_id": request_id()}
        if guards:
            body["session"] = self._session_of(guards[0]).id
        try:
            answer = await self.servers.ask(call("POST", "/v1/txn", body))
        except Refused as refusal:
            if guards:
                raise await explained(guards[0].life, guards[0].holder, refusal) from refusal
            raise
        return list(answer["results"][len(held) :])


def _data(data: Union[str, bytes]) -> Json:
    if isinstance(data, str):
        return {"data": data}
    import base64

    return {"data_base64": base64.b64encode(data).decode()}


def _znode(path: str) -> str:
    if not path.startswith("/"):
        raise ValueError(f"the path of a znode begins with a slash: {path!r}")
    return "/v1/znodes" + quote(path)


def _election_znode(election: str) -> str:
    return "/elections/" + segment(election)


_cores: "weakref.WeakSet[Core]" = weakref.WeakSet()


def _close_all() -> None:
    """Closes the sessions of a program that ends, so that nobody waits for their TTL."""
    closing = [Call(core.close(), None) for core in list(_cores) if core.session is not None and not core.closed]
    for each in closing:
        try:
            each.future.result(2)
        except Exception as error:
            log.warning("a session was not closed at the end of the program: %s", error)


def _after_fork() -> None:
    """A child of a fork holds nothing: the locks are its parent's."""
    for core in list(_cores):
        if core.session is not None:
            core.session.life.forked()
        core.session = core._servers = core._opening = None


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
