"""kazoo and callers by HTTP in one queue: mutual exclusion in the order of arrival, also through a failover."""

from kazoo.exceptions import LockTimeout
from kazoo.recipe.lock import Lock

from harness import PATIENCE_S, SHORT_S, LimitedResource, Threads, connect_all, contend, say, wait_for
from lockgate_http import HttpLock, queue_of

SHORT_MS = int(SHORT_S * 1000)


class CuratorsLock(Lock):
    """kazoo's lock with the znode names of Curator's mutex, so that it shares a queue with it."""

    _NODE_NAME = "-lock-"
    _EXCLUDE_NAMES = ["-lock-"]


def soon(lock):
    """Returns whether it can be acquired in a short time."""
    try:
        return lock.acquire(timeout=SHORT_S)
    except LockTimeout:
        return False


def exclude_each_other(ours, theirs):
    ours.acquire()
    say(f"by HTTP beside kazoo: {theirs.acquire(SHORT_MS)}, without waiting: {theirs.acquire(0)}")
    ours.release()
    say(f"then: {theirs.acquire()}, kazoo beside it: {soon(ours)}")
    theirs.release()
    say(f"then: {ours.acquire(timeout=PATIENCE_S)}")
    ours.release()


def in_order(name, locks):
    """Each contender arrives once the one before is in the queue."""
    locks[0][1].acquire()
    order = []
    threads = Threads()

    def take(who, lock):
        lock.acquire()
        order.append(who)
        lock.release()

    for number, (who, lock) in enumerate(locks[1:]):
        threads.start(take, who, lock)
        wait_for("it stands in the queue", lambda expected=number + 1: queue_of(name) == (1, expected))
    locks[0][1].release()
    threads.join()
    say(f"in the order of arrival: {', '.join(order)}")


def compete(clients, name, make, names):
    resource = LimitedResource(1)

    def turn(lock):
        def take():
            with lock:
                resource.use()

        return take

    locks = [make(client) for client in clients] + [HttpLock(name, names=names) for _ in clients]
    contend(clients[0], 4, [turn(lock) for lock in locks])
    say(f"the most at once: {resource.most}")


def everything(clients, name, make, names):
    path = f"/locks/{name}"
    exclude_each_other(make(clients[0], path), HttpLock(name, names=names))
    kazoos = [("kazoo", make(client, path)) for client in clients]
    https = [("HTTP", HttpLock(name, names=names)) for _ in clients]
    in_order(name, [one for pair in zip(kazoos, https) for one in pair])
    compete(clients, name, lambda client: make(client, path), names)


def readers_and_writers(clients):
    name = "kazoo-readers"
    path = f"/locks/{name}"
    reader, writer = clients[0].ReadLock(path), clients[1].WriteLock(path)
    http_reader, http_writer = HttpLock(name, mode="shared", names="kazoo"), HttpLock(name, names="kazoo")
    reader.acquire()
    say(f"a reader beside a reader: {http_reader.acquire(SHORT_MS)}")
    say(f"a writer beside them: by HTTP {http_writer.acquire(SHORT_MS)}, kazoo {soon(writer)}")
    reader.release()
    say(f"beside the reader by HTTP: kazoo's writer {soon(writer)}")
    http_reader.release()
    say(f"kazoo's writer: {writer.acquire(timeout=PATIENCE_S)}, a reader beside it: {http_reader.acquire(SHORT_MS)}")
    writer.release()
    say(f"the writer by HTTP: {http_writer.acquire()}, kazoo's reader beside it: {soon(reader)}")
    http_writer.release()


clients = connect_all(2)
say("kazoo's Lock, and `names` kazoo")
everything(clients, "kazoo-and-http", lambda client, path: client.Lock(path), "kazoo")
say("kazoo by Curator's names, and `names` mutex")
everything(clients, "curators-names-and-http", CuratorsLock, "mutex")
say("ReadLock and WriteLock")
readers_and_writers(clients)
for client in clients:
    client.stop()
