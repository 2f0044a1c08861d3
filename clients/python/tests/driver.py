"""Driver of the conformance suite for both faces of the package. `clients/conformance/PROTOCOL.md` has the protocol.

The driver is an asyncio program. It calls the face for threads on threads."""

import asyncio
import concurrent.futures
import inspect
import json
import logging
import pathlib
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Optional

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import lockgate
from lockgate import GateClosed, LockLost, OutcomeUnknown, Refused, Unavailable, aio, want
from lockgate.fake import FakeCluster

ASYNC = "--asyncio" in sys.argv
LOG: List[str] = []
Json = Dict[str, Any]


class Recorder(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        LOG.append(f"{record.levelname} {record.getMessage()}")


def say(line: Json) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def error_of(error: BaseException) -> Json:
    message = str(error)
    if isinstance(error, Refused):
        return {"kind": "refused", "code": error.code, "message": message}
    if isinstance(error, LockLost):
        loss = error.loss
        return {"kind": "lost", "reason": loss.reason, "by": loss.by, "detail": loss.detail, "message": message}
    kinds = {Unavailable: "unavailable", OutcomeUnknown: "unknown", asyncio.CancelledError: "cancelled"}
    return {"kind": kinds.get(type(error), "usage"), "message": message or repr(error)}


def failed(result: Any) -> Optional[Json]:
    """Returns the document of a result that is an error."""
    return {"error": error_of(result)} if isinstance(result, Exception) else None


class OwnError(Exception):
    pass


class Driver:
    def __init__(self) -> None:
        self.gates: Dict[str, Any] = {}
        self.fakes: Dict[str, FakeCluster] = {}
        self.grants: Dict[str, Any] = {}
        self.ends: Dict[str, Any] = {}
        self.running: Dict[int, "asyncio.Task[None]"] = {}

    async def run(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Calls a method of either face."""
        if inspect.iscoroutinefunction(function):
            return await function(*args, **options)
        return await on_thread(lambda: function(*args, **options))

    def note(self, name: str, lock: Any) -> Json:
        """Names a grant, and reports its loss and release requests."""
        self.grants[name] = lock
        lock.on_lost(lambda loss: say({"event": "lost", "as": name, "reason": loss.reason, "by": loss.by, "detail": loss.detail}))
        lock.on_release_request(lambda asked: say({"event": "release_requested", "as": name, "by": asked.by, "reason": asked.reason}))
        hold = lock.holds[0]
        return {"fencing_token": lock.token, "holder": hold.holder, "mode": hold.mode}

    async def do_open(self, client: str, servers: List[str], ttl_ms: int, patience_ms: int = 10_000, **options: Any) -> None:
        fake = options.pop("fake", False)
        if "token_file" in options:
            path = options.pop("token_file")
            options["token"] = lambda: pathlib.Path(path).read_text().strip()
        face = aio.Gate if ASYNC else lockgate.Gate
        options.update(ttl=ttl_ms / 1000, patience=patience_ms / 1000)
        if fake:
            self.fakes[client] = FakeCluster()
            servers, options["transport"] = ["fake:1"], self.fakes[client]
        self.gates[client] = face(servers, **options)

    async def do_session(self, client: str) -> Json:
        gate = self.gates[client]
        ttl = gate.session_ttl
        return {"session": gate.session_id, "ttl_ms": ttl and round(ttl * 1000)}

    async def do_close(self, client: str) -> None:
        await self.run(self.gates[client].close)

    async def do_metrics(self, client: str) -> Json:
        return dict(self.gates[client].metrics())

    async def do_logs(self) -> Json:
        return {"lines": LOG}

    def wanted(self, client: str, lock: str, wait_ms: Optional[int], options: Json) -> Any:
        gate, wait = self.gates[client], None if wait_ms is None else wait_ms / 1000
        if options.get("mode") == "semaphore":
            options.pop("mode")
            return gate.semaphore(lock, wait=wait, **options)
        if "max_hold_ms" in options:
            options["max_hold"] = options.pop("max_hold_ms") / 1000
        return gate.lock(lock, wait, **options)

    async def do_acquire(self, client: str, lock: str, wait_ms: Optional[int], **options: Any) -> Json:
        name = options.pop("as")
        wanted = self.wanted(client, lock, wait_ms, options)
        await self.run(wanted._acquire, wanted._wait)
        return self.note(name, wanted)

    async def do_cycle(self, client: str, lock: str, workers: int, seconds: float) -> Json:
        gate, end = self.gates[client], time.monotonic() + seconds

        async def on_tasks(number: int) -> int:
            count = 0
            while time.monotonic() < end:
                async with gate.lock(f"{lock}/{number}"):
                    count += 1
            return count

        def on_threads(number: int) -> int:
            count = 0
            while time.monotonic() < end:
                with gate.lock(f"{lock}/{number}"):
                    count += 1
            return count

        if ASYNC:
            counts = await asyncio.gather(*map(on_tasks, range(workers)))
        else:
            with concurrent.futures.ThreadPoolExecutor(workers) as pool:
                loop = asyncio.get_running_loop()
                counts = await asyncio.gather(*(loop.run_in_executor(pool, on_threads, number) for number in range(workers)))
        return {"cycles": sum(counts)}

    async def do_acquire_many(self, client: str, locks: List[Json], wait_ms: Optional[int], **options: Any) -> Json:
        name = options.pop("as")
        wanted = [want(each.pop("lock"), **each) for each in locks]
        lock = self.gates[client].locks(*wanted, wait=None if wait_ms is None else wait_ms / 1000)
        await self.run(lock._acquire, lock._wait)
        self.note(name, lock)
        return {"fencing_tokens": list(lock.tokens)}

    async def do_cancel(self, command: int) -> None:
        task = self.running.get(command)
        if task is not None:
            task.cancel()

    async def do_release(self, **options: Any) -> None:
        await self.run(self.grants[options["as"]].release)

    async def do_check(self, **options: Any) -> Json:
        try:
            self.grants[options["as"]].check()
        except (LockLost, RuntimeError):
            return {"valid": False}
        return {"valid": True}

    async def do_verify(self, **options: Any) -> Json:
        return {"held": await self.run(self.grants[options["as"]].verify)}

    async def do_upgrade(self, wait_ms: Optional[int], **options: Any) -> Json:
        lock = self.grants[options["as"]]
        token = await self.run(lock.upgrade, None if wait_ms is None else wait_ms / 1000)
        return {"fencing_token": token, "mode": lock.holds[0].mode}

    async def do_downgrade(self, mode: str, **options: Any) -> Json:
        lock = self.grants[options["as"]]
        token = await self.run(lock.downgrade, mode)
        return {"fencing_token": token, "mode": lock.holds[0].mode}

    async def do_reply_release(self, answer: str, **options: Any) -> None:
        await self.run(self.grants[options["as"]].reply_release, answer)

    async def do_block(self, client: str, lock: str, wait_ms: Optional[int], hold: bool = False, **options: Any) -> None:
        name = options.pop("as")
        wanted = self.wanted(client, lock, wait_ms, options)
        if ASYNC:
            await self._block(name, wanted, hold)
        else:
            self.ends[name] = Ending()
            await on_thread(lambda: self._block_on_thread(name, wanted, hold))

    async def _block(self, name: str, wanted: Any, hold: bool) -> None:
        end = self.ends[name] = Ending(asyncio.Event())
        async with wanted as lock:
            self.note(name, lock)
            say({"event": "entered", "as": name, "fencing_token": lock.token})
            try:
                await end.event.wait()
            except asyncio.CancelledError:
                say({"event": "interrupted", "as": name, "reason": lock.loss and lock.loss.reason})
                if not hold:
                    raise
                await end.event.wait()
            if end.error is not None:
                raise OwnError(end.error)

    def _block_on_thread(self, name: str, wanted: Any, hold: bool) -> None:
        end = self.ends[name]
        with wanted as lock:
            self.note(name, lock)
            say({"event": "entered", "as": name, "fencing_token": lock.token})
            while not end.event.is_set():
                if lock.lost.wait(0.02):
                    say({"event": "interrupted", "as": name, "reason": lock.loss and lock.loss.reason})
                    if not hold:
                        lock.check()
                    end.event.wait()
            if end.error is not None:
                raise OwnError(end.error)

    async def do_end_block(self, **options: Any) -> None:
        self.ends[options["as"]].end(options.get("raise"))

    async def do_work(self, every_ms: int, **options: Any) -> None:
        name = options["as"]
        lock = self.grants[name]

        async def work() -> None:
            while True:
                checked_at = time.monotonic()
                try:
                    lock.check()
                except (LockLost, RuntimeError) as error:
                    reason = error.loss.reason if isinstance(error, LockLost) else "released"
                    return say({"event": "stopped", "as": name, "reason": reason})
                say({"event": "worked", "as": name, "checked_at": checked_at})
                await asyncio.sleep(every_ms / 1000)

        self.keep(work())

    def keep(self, coroutine: Any) -> None:
        task = asyncio.ensure_future(coroutine)
        TASKS.add(task)
        task.add_done_callback(TASKS.discard)

    async def do_lease_acquire(self, client: str, lock: str, ttl_ms: int, wait_ms: Optional[int], **options: Any) -> Json:
        wait = None if wait_ms is None else wait_ms / 1000
        times = {name[:-3]: options.pop(name) / 1000 for name in ("min_hold_ms", "max_hold_ms") if name in options}
        lease = await self.run(self.gates[client].lease, lock, ttl_ms / 1000, wait, **times, **options)
        return {"lease": lease.text, "fencing_token": lease.token, "expires_in_ms": round(lease.expires_in * 1000)}

    async def do_lease_wait(self, client: str, lease: str, wait_ms: Optional[int]) -> Json:
        handle = self.gates[client].resume_lease(lease)
        await self.run(handle.wait, None if wait_ms is None else wait_ms / 1000)
        return {"fencing_token": handle.token}

    async def do_lease_renew(self, client: str, lease: str, ttl_ms: Optional[int] = None) -> Json:
        handle = self.gates[client].resume_lease(lease)
        left = await self.run(handle.renew, None if ttl_ms is None else ttl_ms / 1000)
        return {"expires_in_ms": round(left * 1000), "fencing_token": handle.token}

    async def do_lease_release(self, client: str, lease: str) -> None:
        await self.run(self.gates[client].resume_lease(lease).release)

    async def do_lease_get(self, client: str, lease: str) -> Json:
        found: Json = await self.run(self.gates[client].resume_lease(lease).inspect)
        return found

    async def do_leases_acquire(self, client: str, locks: List[Json], ttl_ms: int) -> Json:
        leases = await self.run(self.gates[client].leases, [each["lock"] for each in locks], ttl_ms / 1000)
        return {"leases": [failed(each) or {"lease": each.text, "fencing_token": each.token} for each in leases]}

    async def do_leases_renew(self, client: str, leases: List[str], ttl_ms: int) -> Json:
        handles = [self.gates[client].resume_lease(text) for text in leases]
        left = await self.run(self.gates[client].renew_leases, handles, ttl_ms / 1000)
        return {"leases": [failed(each) or {"fencing_token": handle.token} for handle, each in zip(handles, left)]}

    async def do_leases_release(self, client: str, leases: List[str]) -> Json:
        handles = [self.gates[client].resume_lease(text) for text in leases]
        return {"leases": [failed(each) or {} for each in await self.run(self.gates[client].release_leases, handles)]}

    async def do_campaign(self, client: str, election: str, candidate: str, wait_ms: Optional[int], **options: Any) -> Json:
        wait = None if wait_ms is None else wait_ms / 1000
        leadership = self.gates[client].election(election).candidate(candidate, wait)
        await self.run(leadership._acquire, wait)
        return self.note(options["as"], leadership)

    async def do_resign(self, **options: Any) -> None:
        await self.run(self.grants[options["as"]].resign)

    async def do_leader(self, client: str, election: str) -> Json:
        return {"candidate": await self.run(self.gates[client].election(election).leader)}

    async def do_observe(self, client: str, election: str, **options: Any) -> None:
        def tell(leader: Optional[str]) -> None:
            say({"event": "leader", "as": options["as"], "candidate": leader})

        leaders = self.gates[client].election(election).observe()
        if ASYNC:

            async def observe() -> None:
                async for leader in leaders:
                    tell(leader)

            self.keep(observe())
        else:

            def observe_on_thread() -> None:
                try:
                    for leader in leaders:
                        tell(leader)
                except GateClosed:
                    return

            threading.Thread(target=observe_on_thread, daemon=True).start()

    async def do_hand_over(self, to: str, **options: Any) -> None:
        await self.run(self.grants[options["as"]].hand_over, to)

    async def do_create(
        self, client: str, path: str, data: str = "", mode: str = "persistent", ttl_ms: Optional[int] = None, parents: bool = False
    ) -> Json:
        ttl = None if ttl_ms is None else ttl_ms / 1000
        return {"path": await self.run(self.gates[client].create, path, data, mode, ttl, parents)}

    async def do_get(self, client: str, path: str) -> Json:
        znode = await self.run(self.gates[client].get, path)
        return {"data": znode.text, "version": znode.version}

    async def do_set(self, client: str, path: str, data: str, version: Optional[int] = None) -> Json:
        return {"version": await self.run(self.gates[client].set, path, data, version)}

    async def do_delete(self, client: str, path: str, version: Optional[int] = None) -> None:
        await self.run(self.gates[client].delete, path, version)

    async def do_children(self, client: str, path: str) -> Json:
        return {"children": await self.run(self.gates[client].children, path)}

    async def do_watch(self, client: str, path: str, kind: str, timeout_ms: int, **options: Any) -> None:
        gate = self.gates[client]
        since = None
        if kind != "exists":
            znode = await self.run(gate.get, path)
            since = znode.zxid if kind == "data" else znode.stat["pzxid"]

        async def watch() -> None:
            event = await self.run(gate.watch, path, kind, timeout_ms / 1000, since)
            if event is not None:
                say({"event": "watch", "as": options["as"], "kind": event["event"], "path": event["path"]})

        self.keep(watch())
        if kind == "exists":
            # Without a position in the log the watch is armed when the server has it.
            await asyncio.sleep(0.3)

    async def do_guarded_set(self, path: str, data: str, **options: Any) -> None:
        lock = self.grants[options["as"]]
        gate: Any = next(gate for gate in self.gates.values() if gate._core is lock._core)
        await self.run(gate.transaction, [{"set": {"path": path, "data": data}}], [lock])

    async def do_fake_break(self, client: str, lock: str, reason: str) -> None:
        self.fakes[client].break_lock(lock, reason)

    async def do_fake_expire(self, client: str) -> None:
        self.fakes[client].expire_sessions()

    async def execute(self, command: Json) -> None:
        number, name = command.pop("id"), command.pop("do")
        try:
            done = await getattr(self, f"do_{name}")(**command)
        except BaseException as error:
            say({"id": number, "error": error_of(error)})
        else:
            say({"id": number, "ok": done or {}})
        finally:
            self.running.pop(number, None)


class Ending:
    """Order to end a block."""

    def __init__(self, event: Any = None) -> None:
        self.event: Any = event or threading.Event()
        self.error: Optional[str] = None

    def end(self, error: Optional[str]) -> None:
        self.error = error
        self.event.set()


async def on_thread(function: Callable[[], Any]) -> Any:
    """Runs a call that blocks on a thread, which does not hold up the end of the driver."""
    future: "concurrent.futures.Future[Any]" = concurrent.futures.Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return await asyncio.wrap_future(future)


TASKS: "set[Any]" = set()


async def main() -> None:
    loop = asyncio.get_running_loop()
    driver = Driver()
    lines: "asyncio.Queue[str]" = asyncio.Queue()

    def read() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(lines.put_nowait, line)
        loop.call_soon_threadsafe(lines.put_nowait, "")

    threading.Thread(target=read, daemon=True).start()
    unsupported = {} if ASYNC else {"cancel": "a thread that blocks can only be interrupted by Ctrl-C"}
    say({"event": "ready", "client": "python-asyncio" if ASYNC else "python", "unsupported": unsupported})
    while True:
        line = await lines.get()
        if not line:
            break
        command = json.loads(line)
        driver.running[command["id"]] = asyncio.ensure_future(driver.execute(command))


if __name__ == "__main__":
    logger = logging.getLogger("lockgate")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(Recorder())
    logger.addHandler(logging.StreamHandler(sys.stderr))
    asyncio.run(main())
