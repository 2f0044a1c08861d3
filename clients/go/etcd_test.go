package lockgate_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"lockgate"
)

// The cases of the tests of etcd's package concurrency, restated. docs/clients/conformance.md has the differences.

func TestEtcdWaiterOfAClosedSessionFails(t *testing.T) {
	cluster := newCluster(t)
	s1, s2 := newSession(t, cluster), newSession(t, cluster)
	m1, m2 := lockgate.NewMutex(s1, "a"), lockgate.NewMutex(s2, "a")
	must(t, m1.Lock(background))
	waits := make(chan error, 1)
	go func() { waits <- m2.Lock(background) }()
	eventually(t, "m2 waits", func() bool { return queued(t, s1, "a") == 1 })
	must(t, s2.Close())
	mustBe(t, <-waits, lockgate.ErrClosed)
	must(t, m1.Unlock(background))
	if holders(t, s1, "a") != 0 {
		t.Error("the waiter of the closed session holds the lock")
	}
}

func TestEtcdWaiterWaitsForTheHolderThoughTheOneBeforeItIsGone(t *testing.T) {
	cluster := newCluster(t)
	s1, s2, s3 := newSession(t, cluster), newSession(t, cluster), newSession(t, cluster)
	m1, m3 := lockgate.NewMutex(s1, "a"), lockgate.NewMutex(s3, "a")
	must(t, m1.Lock(background))
	for i, m := range []*lockgate.Mutex{lockgate.NewMutex(s2, "a"), m3} {
		go func(m *lockgate.Mutex) { _ = m.Lock(background) }(m)
		eventually(t, "it waits", func() bool { return queued(t, s1, "a") == i+1 })
	}
	must(t, s2.Close())
	eventually(t, "one waits", func() bool { return queued(t, s1, "a") == 1 })
	must(t, m1.Check())
	mustBe(t, m3.Check(), lockgate.ErrNotHeld)
	must(t, m1.Unlock(background))
	eventually(t, "the next one is granted the lock", func() bool { return m3.Check() == nil })
}

func TestEtcdTryLock(t *testing.T) {
	cluster := newCluster(t)
	m1, m2 := lockgate.NewMutex(newSession(t, cluster), "a"), lockgate.NewMutex(newSession(t, cluster), "a")
	must(t, m1.TryLock(background))
	mustBe(t, m2.TryLock(background), lockgate.ErrLocked)
	must(t, m1.Unlock(background))
	must(t, m2.TryLock(background))
}

// In etcd a second value with the session of the holder enters the lock. Here it waits, unless both have one owner.
func TestEtcdRelockInOneSessionNeedsAnOwner(t *testing.T) {
	s := newSession(t, newCluster(t))
	must(t, lockgate.NewMutex(s, "a").Lock(background))
	mustBe(t, lockgate.NewMutex(s, "a").TryLock(background), lockgate.ErrLocked)
	must(t, lockgate.NewMutex(s, "b", lockgate.WithOwner("me")).Lock(background))
	must(t, lockgate.NewMutex(s, "b", lockgate.WithOwner("me")).Lock(background))
}

func TestEtcdLocker(t *testing.T) {
	s := newSession(t, newCluster(t))
	var group sync.WaitGroup
	count, before := 0, 0
	for i := 0; i < 10; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			locker := lockgate.NewLocker(s, "a")
			locker.Lock()
			defer locker.Unlock()
			before = count
			time.Sleep(time.Millisecond)
			count = before + 1
		}()
	}
	group.Wait()
	if count != 10 {
		t.Errorf("%d of 10 were alone", count)
	}
}

func TestEtcdReadersAndWriters(t *testing.T) {
	cluster := newCluster(t)
	one, two := lockgate.NewRWMutex(newSession(t, cluster), "a"), lockgate.NewRWMutex(newSession(t, cluster), "a")
	must(t, one.RLock(background))
	must(t, two.RLock(background))
	mustBe(t, two.TryLock(background), lockgate.ErrLocked)
	must(t, one.RUnlock(background))
	must(t, two.RUnlock(background))
	must(t, one.Lock(background))
	mustBe(t, two.TryRLock(background), lockgate.ErrLocked)
	must(t, one.Unlock(background))
	must(t, two.TryRLock(background))
}

func TestEtcdElectionFailsOver(t *testing.T) {
	cluster := newCluster(t)
	ctx, cancel := context.WithTimeout(background, 30*time.Second)
	defer cancel()
	s1, s2 := newSession(t, cluster), newSession(t, cluster)
	first, second := lockgate.NewElection(s1, "e"), lockgate.NewElection(s2, "e")
	observed := lockgate.NewElection(newSession(t, cluster), "e").Observe(ctx)
	_, err := first.Leader(ctx)
	mustBe(t, err, lockgate.ErrElectionNoLeader)
	must(t, first.Campaign(ctx, "one"))
	elected := make(chan error, 1)
	go func() { elected <- second.Campaign(ctx, "two") }()
	eventually(t, "two waits", func() bool { return queued(t, s1, "e") == 1 })
	// A change of another election, whose name begins with this one's, is no change of this one.
	must(t, lockgate.NewElection(s1, "e/other").Campaign(ctx, "other"))
	awaitLeader(t, observed, "one")
	must(t, s1.Close())
	must(t, <-elected)
	awaitLeader(t, observed, "two")
	leader, err := second.Leader(ctx)
	must(t, err)
	if leader.Candidate != "two" || leader.Term != second.Token() {
		t.Errorf("%+v leads", leader)
	}
}

func TestEtcdElectionIsCampaignedForAgain(t *testing.T) {
	ctx, cancel := context.WithTimeout(background, 30*time.Second)
	defer cancel()
	e := lockgate.NewElection(newSession(t, newCluster(t)), "e")
	observed := e.Observe(ctx)
	must(t, e.Campaign(ctx, "one"))
	awaitLeader(t, observed, "one")
	must(t, e.Resign(ctx))
	must(t, e.Campaign(ctx, "two"))
	awaitLeader(t, observed, "two")
}

// awaitLeader passes over observations of others, as of no leader.
func awaitLeader(t *testing.T, observed <-chan lockgate.Leader, candidate string) {
	t.Helper()
	for leader := range observed {
		if leader.Candidate == candidate {
			return
		}
	}
	t.Fatalf("%s was not observed as the leader", candidate)
}

func TestEtcdSessionHasItsTTLAndEndsItsContexts(t *testing.T) {
	client, err := newCluster(t).Client(lockgate.Config{})
	must(t, err)
	s, err := lockgate.NewSession(client, lockgate.WithTTL(90))
	must(t, err)
	m := lockgate.NewMutex(s, "a")
	must(t, m.Lock(background))
	if _, ttl := s.ID(); ttl != 90*time.Second {
		t.Errorf("the TTL is %v", ttl)
	}
	child, cancel := context.WithCancel(m.Context())
	defer cancel()
	must(t, s.Close())
	<-child.Done()
	mustBe(t, lockgate.Cause(m.Context()), lockgate.ErrLost, lockgate.ErrClosed)
	must(t, client.Close())
}
