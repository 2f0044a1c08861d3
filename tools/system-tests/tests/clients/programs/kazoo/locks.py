"""Lock, ReadLock, WriteLock and Semaphore: no more holders than allowed, also through a failover."""

from kazoo.exceptions import LockTimeout, NodeExistsError

from harness import PATIENCE_S, SHORT_S, LimitedResource, check, child_count, connect_all, contend, say, up_to_date


def soon(lock):
    """Returns whether it can be acquired in a short time."""
    try:
        return lock.acquire(timeout=SHORT_S)
    except LockTimeout:
        return "not in time"


def one_at_a_time(clients, path):
    first = clients[0].Lock(path, "first")
    second = clients[1].Lock(path, "second")
    first.acquire()
    say(f"a second lock: {soon(second)}, without waiting: {second.acquire(blocking=False)}")
    up_to_date(clients[0])
    say(f"contenders: {first.contenders()}")
    first.release()
    say(f"then: {second.acquire(timeout=PATIENCE_S)}, contenders: {second.contenders()}")
    second.release()

    resource = LimitedResource(1)

    def turn(client):
        lock = client.Lock(path)

        def take():
            with lock:
                resource.use()

        return take

    contend(clients[0], 4, [turn(client) for client in clients * 2])
    say(f"the most at once: {resource.most}, contenders left: {child_count(clients[0], path)}")


def readers_or_a_writer(clients, path):
    reader, other = clients[0].ReadLock(path, "reader"), clients[1].ReadLock(path, "other reader")
    writer = clients[2].WriteLock(path, "writer")
    reader.acquire()
    say(f"two readers: {soon(other)}, a writer beside them: {soon(writer)}")
    say(f"contenders: {writer.contenders()}")
    reader.release()
    other.release()
    say(f"a writer: {writer.acquire(timeout=PATIENCE_S)}, a reader beside it: {soon(reader)}")
    writer.release()

    resource = LimitedResource(LimitedResource.ALONE)

    def read(client):
        lock = client.ReadLock(path)

        def take():
            with lock:
                resource.use()

        return take

    def write(client):
        lock = client.WriteLock(path)

        def take():
            with lock:
                resource.use_alone()

        return take

    contend(clients[1], 4, [read(client) for client in clients] + [write(client) for client in clients[:2]])
    say(f"a writer was always alone: True, contenders left: {child_count(clients[0], path)}")


def acquire(semaphore):
    """Acquires a lease. kazoo repeats a request whose answer was lost, and may find the first lease: then it tries again."""
    while True:
        try:
            check(semaphore.acquire(), "a lease is acquired")
            return
        except NodeExistsError:
            pass


def leases(clients, path):
    semaphores = [client.Semaphore(path, f"client {number}", max_leases=2) for number, client in enumerate(clients)]
    say(f"two of two leases: {semaphores[0].acquire()}, {semaphores[1].acquire()}")
    say(f"a third: {soon(semaphores[2])}, holders: {sorted(semaphores[2].lease_holders())}")
    semaphores[0].release()
    say(f"then: {semaphores[2].acquire(timeout=PATIENCE_S)}")
    up_to_date(clients[0])
    say(f"holders: {sorted(semaphores[0].lease_holders())}")
    semaphores[1].release()
    semaphores[2].release()

    resource = LimitedResource(2)

    def turn(client):
        semaphore = client.Semaphore(path, max_leases=2)

        def take():
            acquire(semaphore)
            try:
                resource.use()
            finally:
                semaphore.release()

        return take

    contend(clients[2], 3, [turn(client) for client in clients * 2])
    check(resource.most <= 2, "there are two leases")
    say(f"never more than two at once: True, leases left: {child_count(clients[0], path)}")


CLIENTS = connect_all(3)
# At any path, and at the path of the locks of all other Lockgate clients.
for root in ("/kazoo/locks", "/locks"):
    say(root)
    one_at_a_time(CLIENTS, root + "/kazoo-lock")
    readers_or_a_writer(CLIENTS, root + "/kazoo-read-write")
    leases(CLIENTS, root + "/kazoo-semaphore")
for each in CLIENTS:
    each.stop()
