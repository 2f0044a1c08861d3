"""Works with locks, transactions and reads by the client that openapi-python-client made. Its arguments are the nodes' URLs."""

import sys
import threading

from lockgate_api import Client
from lockgate_api.api.health import metrics
from lockgate_api.api.locks import acquire_lock, get_lock, release_lock
from lockgate_api.api.multilock import acquire_locks, release_locks
from lockgate_api.api.sessions import close_session, open_session
from lockgate_api.api.znodes import read_znodes, transaction
from lockgate_api.models.acquire_body import AcquireBody
from lockgate_api.models.check_op import CheckOp
from lockgate_api.models.create_op import CreateOp
from lockgate_api.models.delete_op import DeleteOp
from lockgate_api.models.grant_answer import GrantAnswer
from lockgate_api.models.grants_answer import GrantsAnswer
from lockgate_api.models.held_lock import HeldLock
from lockgate_api.models.held_op import HeldOp
from lockgate_api.models.lock_answer import LockAnswer
from lockgate_api.models.multilock_acquire_body import MultilockAcquireBody
from lockgate_api.models.multilock_release_body import MultilockReleaseBody
from lockgate_api.models.of_node import OfNode
from lockgate_api.models.op_body_check import OpBodyCheck
from lockgate_api.models.op_body_create import OpBodyCreate
from lockgate_api.models.op_body_delete import OpBodyDelete
from lockgate_api.models.op_body_held import OpBodyHeld
from lockgate_api.models.op_body_set import OpBodySet
from lockgate_api.models.op_result_created import OpResultCreated
from lockgate_api.models.op_result_held import OpResultHeld
from lockgate_api.models.open_answer import OpenAnswer
from lockgate_api.models.open_body import OpenBody
from lockgate_api.models.problem import Problem
from lockgate_api.models.problem_code import ProblemCode
from lockgate_api.models.read_body_get import ReadBodyGet
from lockgate_api.models.read_result_get import ReadResultGet
from lockgate_api.models.reads_answer import ReadsAnswer
from lockgate_api.models.reads_body import ReadsBody
from lockgate_api.models.release_answer import ReleaseAnswer
from lockgate_api.models.release_body import ReleaseBody
from lockgate_api.models.set_op import SetOp
from lockgate_api.models.txn_answer import TxnAnswer
from lockgate_api.models.txn_body import TxnBody
from lockgate_api.models.wanted_lock import WantedLock

LOCK = "generated/python"


def session(client: Client) -> str:
    opened = open_session.sync(client=client, body=OpenBody(ttl_ms=60_000, name="use.py"))
    assert isinstance(opened, OpenAnswer), opened
    return opened.session


def acquire(client: Client, body: AcquireBody) -> GrantAnswer:
    grant = acquire_lock.sync(LOCK, client=client, body=body)
    assert isinstance(grant, GrantAnswer), grant
    return grant


def release(client: Client, session: str, grant: GrantAnswer) -> None:
    released = release_lock.sync(LOCK, client=client, body=ReleaseBody(session=session, holder=grant.holder))
    assert isinstance(released, ReleaseAnswer) and released.holds == 0, released


def main() -> None:
    clients = [Client(base_url=url) for url in sys.argv[1:]]
    first, last = clients[0], clients[-1]
    holder, waiter = session(first), session(last)

    grant = acquire(first, AcquireBody(session=holder))
    busy = acquire_lock.sync(LOCK, client=last, body=AcquireBody(session=waiter))
    assert isinstance(busy, Problem) and busy.code == ProblemCode.LOCK_BUSY, busy
    assert busy.holders == [grant.holder], busy

    granted: list[GrantAnswer] = []
    body = AcquireBody(session=waiter, wait_ms=30_000, request_id="wait", note="from use.py")
    waiting = threading.Thread(target=lambda: granted.append(acquire(last, body)))
    waiting.start()
    while True:
        seen = get_lock.sync(LOCK, client=last)
        assert isinstance(seen, LockAnswer), seen
        if len(seen.queue) == 1:
            break

    done = transaction.sync(
        client=first,
        body=TxnBody(
            session=holder,
            ops=[
                OpBodyHeld(held=HeldOp(lock=LOCK, fencing_token=grant.fencing_token)),
                OpBodyCreate(create=CreateOp(path="/generated-python", data="one")),
                OpBodySet(set_=SetOp(path="/generated-python", data="two", version=0)),
                OpBodyCheck(check=CheckOp(path="/generated-python", version=1)),
            ],
        ),
    )
    assert isinstance(done, TxnAnswer), done
    assert isinstance(done.results[0], OpResultHeld), done
    assert isinstance(done.results[1], OpResultCreated), done
    assert done.results[1].created.path == "/generated-python", done

    reads = ReadsBody(reads=[ReadBodyGet(get=OfNode(path="/generated-python"))])
    read = read_znodes.sync(client=last, body=reads, linearizable=True)
    assert isinstance(read, ReadsAnswer), read
    assert isinstance(read.results[0], ReadResultGet) and read.results[0].get.data == "two", read

    release(first, holder, grant)
    waiting.join()
    assert granted[0].fencing_token > grant.fencing_token
    late = transaction.sync(
        client=first,
        body=TxnBody(
            session=holder,
            ops=[
                OpBodyHeld(held=HeldOp(lock=LOCK, fencing_token=grant.fencing_token)),
                OpBodyDelete(delete=DeleteOp(path="/generated-python")),
            ],
        ),
    )
    assert isinstance(late, Problem) and late.code == ProblemCode.NOT_HOLDER, late
    release(last, waiter, granted[0])
    gone = TxnBody(ops=[OpBodyDelete(delete=DeleteOp(path="/generated-python"))])
    assert isinstance(transaction.sync(client=last, body=gone), TxnAnswer)

    wanted = [WantedLock(name=f"{LOCK}/{name}") for name in ("a", "b")]
    both = acquire_locks.sync(client=first, body=MultilockAcquireBody(session=holder, locks=wanted))
    assert isinstance(both, GrantsAnswer), both
    held = [HeldLock(lock=grant.lock, holder=grant.holder) for grant in both.holders]
    release_locks.sync(client=last, body=MultilockReleaseBody(session=holder, holders=held))

    measured = metrics.sync(client=first)
    assert isinstance(measured, str) and "lockgate_ready 1" in measured, measured
    for client, open_one in ((first, holder), (last, waiter)):
        closed = close_session.sync_detailed(open_one, client=client)
        assert closed.status_code == 204, closed


main()
