"""Cases of redis-py's tests of its `Lock`, restated for locks and leases of this package. docs/clients/conformance.md has the differences."""

import time
import unittest

from lockgate import LockLost, NotAcquired, Refused
from lockgate.fake import FakeCluster


class RedisLock(unittest.TestCase):
    def setUp(self) -> None:
        self.cluster = FakeCluster()
        self.gate = self.cluster.gate()

    def tearDown(self) -> None:
        self.gate.close()

    def test_lock_is_held_and_released(self) -> None:
        lock = self.gate.lock("foo")
        self.assertTrue(lock.acquire(blocking=False))
        self.assertTrue(lock.owned())
        lock.release()
        self.assertFalse(lock.locked() or lock.owned())

    def test_locked_is_told_by_the_cluster_and_owned_by_the_object(self) -> None:
        lock, other = self.gate.lock("foo"), self.gate.lock("foo")
        self.assertFalse(lock.locked())
        other.acquire(blocking=False)
        self.assertTrue(lock.locked() and other.locked())
        self.assertFalse(lock.owned())
        other.release()
        self.assertFalse(lock.locked() or other.locked())

    def test_competing_locks_exclude_each_other(self) -> None:
        one, two = self.gate.lock("foo"), self.gate.lock("foo")
        self.assertTrue(one.acquire(blocking=False))
        self.assertFalse(two.acquire(blocking=False))
        one.release()
        self.assertTrue(two.acquire(blocking=False))
        self.assertFalse(one.acquire(blocking=False))
        two.release()

    def test_timeout_of_the_wait(self) -> None:
        one, two = self.gate.lock("foo"), self.gate.lock("foo", wait=0.2)
        one.acquire()
        began = time.monotonic()
        self.assertFalse(two.acquire())
        self.assertGreater(time.monotonic() - began, 0.19)
        one.release()
        self.assertTrue(two.acquire(timeout=-1))

    def test_with_acquires_and_releases(self) -> None:
        with self.gate.lock("foo", wait=0.2) as lock:
            self.assertTrue(lock.owned())
        self.assertFalse(lock.locked())

    def test_with_raises_if_the_lock_is_not_free(self) -> None:
        self.gate.lock("foo").acquire()
        with self.assertRaises(NotAcquired), self.gate.lock("foo", wait=0.05):
            self.fail("the block is entered")

    def test_release_of_a_lock_that_was_never_acquired(self) -> None:
        with self.assertRaises(RuntimeError):
            self.gate.lock("foo").release()

    def test_release_of_a_lock_that_another_one_has_now(self) -> None:
        lock = self.gate.lock("foo")
        lock.acquire(blocking=False)
        self.cluster.break_lock("foo", "test")
        other = self.gate.lock("foo")
        other.acquire()
        with self.assertRaises(LockLost):
            lock.release()
        self.assertFalse(lock.owned())
        self.assertTrue(other.owned())

    def test_extend_and_what_needs_the_lock(self) -> None:
        lock = self.gate.lock("foo")
        with self.assertRaises(RuntimeError):
            lock.extend()
        lock.acquire()
        lock.extend()
        self.cluster.break_lock("foo", "test")
        lock.lost.wait(5)
        with self.assertRaises(LockLost):
            lock.extend()
        lock = self.gate.lock("bar")
        lock.acquire()
        lock.release()
        for call in (lock.extend, lock.upgrade, lock.downgrade):
            with self.assertRaises(RuntimeError):
                call()

    def test_lease_has_a_time_that_is_extended_or_set_anew(self) -> None:
        for ttl in (10, 9.5):
            lease = self.gate.lease("foo", ttl=ttl)
            self.assertAlmostEqual(lease.expires_in or 0, ttl, delta=1)
            self.assertAlmostEqual(lease.renew(20), 20, delta=1)
            self.assertAlmostEqual(lease.renew(), 20, delta=1)
            lease.release()

    def test_lease_that_is_over_is_not_extended(self) -> None:
        lease = self.gate.lease("foo", ttl=10)
        self.cluster.break_lock("foo", "test")
        with self.assertRaises(Refused) as over:
            lease.renew(10)
        self.assertEqual(over.exception.code, "lease_expired")
