package lockgate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"lockgate"
	"lockgate/lockgatetest"
)

var background = context.Background()

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustBe(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Fatalf("the error is %v, not %v", err, target)
		}
	}
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not in time: " + what)
		}
	}
}

func newSession(t *testing.T, cluster *lockgatetest.Cluster) *lockgate.Session {
	t.Helper()
	client, err := cluster.Client(lockgate.Config{})
	must(t, err)
	return sessionOf(t, client)
}

func sessionOf(t *testing.T, client *lockgate.Client) *lockgate.Session {
	t.Helper()
	session, err := lockgate.NewSession(client)
	must(t, err)
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return session
}

func newCluster(t *testing.T) *lockgatetest.Cluster {
	cluster := lockgatetest.NewCluster()
	t.Cleanup(cluster.Close)
	return cluster
}

func queued(t *testing.T, s *lockgate.Session, lock string) int {
	state, err := s.Client().Inspect(background, lock)
	must(t, err)
	return len(state.Queue)
}

func holders(t *testing.T, s *lockgate.Session, lock string) int {
	state, err := s.Client().Inspect(background, lock)
	must(t, err)
	return len(state.Holders)
}

func TestLockExcludesAndRises(t *testing.T) {
	cluster := newCluster(t)
	s := newSession(t, cluster)
	if id, _ := s.ID(); id != "" {
		t.Error("a session is open before the first lock")
	}
	first, second := lockgate.NewMutex(s, "a"), lockgate.NewMutex(newSession(t, cluster), "a")
	mustBe(t, second.Unlock(background), lockgate.ErrNotHeld)
	must(t, first.Lock(background))
	if first.Lock(background) == nil {
		t.Error("the same value was locked twice")
	}
	mustBe(t, second.TryLock(background), lockgate.ErrLocked)
	short := lockgate.NewMutex(s, "a", lockgate.WithWait(30*time.Millisecond))
	mustBe(t, short.Lock(background), lockgate.ErrLocked)
	// From 1 s on, the reserve for the answer has its full 50 ms.
	ctx, cancel := context.WithTimeout(background, time.Second)
	defer cancel()
	mustBe(t, second.Lock(ctx), context.DeadlineExceeded)
	must(t, ctx.Err())
	if queued(t, s, "a") != 0 {
		t.Error("a wait that has ended is in the queue")
	}
	must(t, first.Check())
	must(t, first.Unlock(background))
	must(t, first.Unlock(background))
	mustBe(t, first.Check(), lockgate.ErrNotHeld)
	mustBe(t, lockgate.Cause(first.Context()), lockgate.ErrNotHeld)
	must(t, second.Lock(background))
	if second.Token() <= first.Token() {
		t.Errorf("fencing token %d after %d", second.Token(), first.Token())
	}
	held, err := second.Verify(background)
	must(t, err)
	if !held {
		t.Error("the cluster does not know the grant")
	}
}

func TestLossEndsTheBlockWithItsReason(t *testing.T) {
	cluster := newCluster(t)
	m := lockgate.NewMutex(newSession(t, cluster), "a")
	var lost *lockgate.Lost
	err := m.Do(background, func(ctx context.Context) error {
		cluster.Break("a", "why")
		<-ctx.Done()
		if !errors.As(lockgate.Cause(ctx), &lost) || lost.Detail != "why" {
			t.Errorf("the cause is %v", lockgate.Cause(ctx))
		}
		mustBe(t, m.Check(), lockgate.ErrLost)
		return ctx.Err()
	})
	if !errors.As(err, &lost) || *lost != (lockgate.Lost{Reason: "broken", By: "test", Detail: "why"}) {
		t.Errorf("the block ended with %v", err)
	}
	own := errors.New("own error")
	mustBe(t, m.Do(background, func(ctx context.Context) error {
		cluster.Break("a", "")
		<-ctx.Done()
		return own
	}), own)
	must(t, m.Do(background, func(context.Context) error { return nil }))
}

func TestPanicInABlockReleases(t *testing.T) {
	s := newSession(t, newCluster(t))
	func() {
		defer func() { _ = recover() }()
		_ = lockgate.NewMutex(s, "a").Do(background, func(context.Context) error { panic("in the block") })
	}()
	if holders(t, s, "a") != 0 {
		t.Error("the lock is still held")
	}
}

func TestUnlockReleasesThoughItsContextHasEnded(t *testing.T) {
	s := newSession(t, newCluster(t))
	m := lockgate.NewMutex(s, "a")
	must(t, m.Lock(background))
	ctx, cancel := context.WithCancel(background)
	cancel()
	if err := m.Unlock(ctx); err != nil {
		mustBe(t, err, context.Canceled)
	}
	eventually(t, "it is released", func() bool { return holders(t, s, "a") == 0 })
}

func TestWaitersAreGrantedInTurn(t *testing.T) {
	s := newSession(t, newCluster(t))
	first := lockgate.NewMutex(s, "a")
	must(t, first.Lock(background))
	order := make(chan int, 3)
	var waiters sync.WaitGroup
	for i := 0; i < 3; i++ {
		waiters.Add(1)
		go func(i int) {
			defer waiters.Done()
			if err := lockgate.NewMutex(s, "a").Do(background, func(context.Context) error { order <- i; return nil }); err != nil {
				t.Error(err)
			}
		}(i)
		eventually(t, "it waits", func() bool { return queued(t, s, "a") == i+1 })
	}
	must(t, first.Unlock(background))
	for i := 0; i < 3; i++ {
		if got := <-order; got != i {
			t.Errorf("waiter %d was granted as number %d", got, i)
		}
	}
	waiters.Wait()
}

func TestModesOwnersAndSeveralLocks(t *testing.T) {
	s := newSession(t, newCluster(t))
	outer, inner := lockgate.NewMutex(s, "o", lockgate.WithOwner("me")), lockgate.NewMutex(s, "o", lockgate.WithOwner("me"))
	must(t, outer.Lock(background))
	must(t, inner.Lock(background))
	if outer.Token() != inner.Token() {
		t.Error("re-entry has another token")
	}
	must(t, inner.Unlock(background))
	must(t, outer.Check())
	must(t, outer.Context().Err())
	mustBe(t, lockgate.NewMutex(s, "o").TryLock(background), lockgate.ErrLocked)
	must(t, outer.Unlock(background))

	rw, other := lockgate.NewRWMutex(s, "b"), lockgate.NewRWMutex(s, "b")
	must(t, rw.RLock(background))
	must(t, other.RLock(background))
	mustBe(t, lockgate.NewRWMutex(s, "b").TryLock(background), lockgate.ErrLocked)
	must(t, other.RUnlock(background))
	both := lockgate.NewMultiMutex(s, []lockgate.Want{{Name: "a"}, {Name: "b", Mode: lockgate.Shared}, {Name: "c", Limit: 2, Permits: 2}})
	must(t, both.Lock(background))
	if len(both.Tokens()) != 3 {
		t.Errorf("the tokens are %v", both.Tokens())
	}
	mustBe(t, lockgate.NewSemaphore(s, "c", 2, 1).TryAcquire(background), lockgate.ErrLocked)
	must(t, both.Unlock(background))

	u := lockgate.NewMutex(s, "b", lockgate.WithMode(lockgate.Upgradeable))
	must(t, u.TryLock(background))
	before := u.Token()
	mustBe(t, u.TryUpgrade(background), lockgate.ErrLocked)
	must(t, rw.RUnlock(background))
	must(t, u.Upgrade(background))
	if u.Token() <= before || u.Holder().Mode != lockgate.Exclusive {
		t.Errorf("after the upgrade: %+v", u.Holder())
	}
	must(t, u.Downgrade(background, lockgate.Shared))
	must(t, rw.TryRLock(background))
	locker := lockgate.NewLocker(s, "l")
	locker.Lock()
	locker.Unlock()
}

func TestLossOfOneOfSeveralLocksReleasesTheOthers(t *testing.T) {
	cluster := newCluster(t)
	s := newSession(t, cluster)
	both := lockgate.NewMultiMutex(s, []lockgate.Want{{Name: "a"}, {Name: "b"}})
	must(t, both.Lock(background))
	cluster.Break("b", "test")
	<-both.Context().Done()
	mustBe(t, lockgate.Cause(both.Context()), lockgate.ErrLost)
	mustBe(t, both.Unlock(background), lockgate.ErrLost)
	if holders(t, s, "a") != 0 {
		t.Error("the other lock is still held")
	}
}

func TestGuardedWriteNeedsTheLock(t *testing.T) {
	cluster := newCluster(t)
	s := newSession(t, cluster)
	c := s.Client()
	_, err := c.Create(background, "/data", []byte("0"))
	must(t, err)
	m := lockgate.NewMutex(s, "a")
	must(t, m.Lock(background))
	results, err := c.Txn(background, []lockgate.Op{lockgate.OpSet("/data", []byte("1"), 0)}, m)
	must(t, err)
	if len(results) != 1 || results[0].Stat.Version != 1 {
		t.Errorf("the results are %+v", results)
	}
	cluster.Break("a", "")
	_, err = c.Txn(background, []lockgate.Op{lockgate.OpSet("/data", []byte("2"), 1)}, m)
	mustBe(t, err, lockgate.ErrLost)
	found, err := c.Get(background, "/data")
	must(t, err)
	if string(found.Data) != "1" {
		t.Errorf("the data are %s", found.Data)
	}
}

func TestElectionIsHandedOverPastTheQueue(t *testing.T) {
	s := newSession(t, newCluster(t))
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	one := lockgate.NewElection(s, "e")
	leaders := one.Observe(ctx)
	if first := <-leaders; first.Term != 0 {
		t.Errorf("the first leader is %+v", first)
	}
	_, err := one.Leader(ctx)
	mustBe(t, err, lockgate.ErrElectionNoLeader)
	must(t, one.Campaign(ctx, "one"))
	if leader := <-leaders; leader != (lockgate.Leader{Candidate: "one", Term: one.Token()}) {
		t.Errorf("the leader is %+v", leader)
	}
	mustBe(t, one.HandOver(ctx, "nobody"), lockgate.ErrNoCandidate)
	must(t, one.Check())
	lead := map[string]chan *lockgate.Election{"two": make(chan *lockgate.Election, 1), "three": make(chan *lockgate.Election, 1)}
	for i, name := range []string{"two", "three"} {
		go func(name string) {
			e := lockgate.NewElection(s, "e")
			if err := e.Campaign(ctx, name); err != nil {
				t.Error(err)
			}
			lead[name] <- e
		}(name)
		eventually(t, "it waits", func() bool { return queued(t, s, "e") == i+1 })
	}
	must(t, one.HandOver(ctx, "three"))
	three := <-lead["three"]
	for leader := range leaders {
		if leader.Candidate == "three" {
			break
		}
	}
	select {
	case <-lead["two"]:
		t.Error("`two` leads beside `three`")
	default:
	}
	must(t, three.Resign(ctx))
	<-lead["two"]
	cancel()
	for range leaders {
	}
}

func TestNewSessionAfterALoss(t *testing.T) {
	cluster := newCluster(t)
	s := newSession(t, cluster)
	m := lockgate.NewMutex(s, "a")
	must(t, m.Lock(background))
	first, _ := s.ID()
	cluster.ExpireSessions()
	<-m.Context().Done()
	if id, _ := s.ID(); id != "" {
		t.Error("a lost session has an id")
	}
	must(t, m.Lock(background))
	if id, _ := s.ID(); id == first {
		t.Error("a lost session is used again")
	}
	must(t, s.Renew(background))
	// A try notices the end of its session by the answer, or by the event before.
	cluster.ExpireSessions()
	must(t, lockgate.NewMutex(s, "b").TryLock(background))
	if counts := s.Client().Metrics(); counts["lost"] != 2 || counts["sessions_opened"] != 3 {
		t.Errorf("the counts are %v", counts)
	}
}

func TestCloseTellsHoldersAndWaitersAndFrees(t *testing.T) {
	cluster := newCluster(t)
	s, other := newSession(t, cluster), newSession(t, cluster)
	m := lockgate.NewMutex(s, "a")
	must(t, m.Lock(background))
	waits := make(chan error)
	go func() { waits <- lockgate.NewMutex(s, "a").Lock(background) }()
	eventually(t, "it waits", func() bool { return queued(t, other, "a") == 1 })
	must(t, s.Client().Close())
	mustBe(t, <-waits, lockgate.ErrClosed)
	mustBe(t, m.Check(), lockgate.ErrLost, lockgate.ErrClosed)
	mustBe(t, m.Lock(background), lockgate.ErrClosed)
	_, err := s.Client().Inspect(background, "a")
	mustBe(t, err, lockgate.ErrClosed)
	must(t, lockgate.NewMutex(other, "a").TryLock(background))
}

func TestCloseEndsAllGoroutines(t *testing.T) {
	before := runtime.NumGoroutine()
	cluster := lockgatetest.NewCluster()
	client, err := cluster.Client(lockgate.Config{AtLeader: true})
	must(t, err)
	s, err := lockgate.NewSession(client)
	must(t, err)
	both := lockgate.NewMultiMutex(s, []lockgate.Want{{Name: "a"}, {Name: "b"}})
	must(t, both.Lock(background))
	must(t, both.Unlock(background))
	must(t, both.Lock(background))
	ctx, cancel := context.WithCancel(background)
	leaders := lockgate.NewElection(s, "e").Observe(ctx)
	<-leaders
	cancel()
	must(t, client.Close())
	cluster.Close()
	eventually(t, "all goroutines end", func() bool { return runtime.NumGoroutine() <= before })
}

func TestReleaseRequestReachesTheHolder(t *testing.T) {
	cluster := newCluster(t)
	s := newSession(t, cluster)
	asked := make(chan lockgate.ReleaseRequest, 1)
	m := lockgate.NewMutex(s, "a", lockgate.OnReleaseRequest(func(r lockgate.ReleaseRequest) { asked <- r }))
	must(t, m.Lock(background))
	must(t, s.Client().RequestRelease(background, "a", "please"))
	if got := <-asked; got.Reason != "please" {
		t.Errorf("the request is %+v", got)
	}
	if got, ok := m.ReleaseRequested(); !ok || got.By != "test" {
		t.Errorf("the request is %+v", got)
	}
	must(t, m.ReplyRelease(background, "soon"))
	must(t, s.Client().Break(background, "a", "now"))
	<-m.Context().Done()
	if _, ok := m.ReleaseRequested(); ok {
		t.Error("a lost lock is asked for")
	}
}

func TestLeaseWaitsInTheQueueWithoutAConnection(t *testing.T) {
	cluster := newCluster(t)
	c := newSession(t, cluster).Client()
	first, err := c.QueueLease(background, "a", time.Minute)
	must(t, err)
	second, err := c.QueueLease(background, "a", time.Minute)
	must(t, err)
	third, err := c.QueueLease(background, "a", time.Minute)
	must(t, err)
	if first.Token == 0 || second.Token != 0 {
		t.Errorf("the tokens are %d and %d", first.Token, second.Token)
	}
	brief, cancel := context.WithTimeout(background, 50*time.Millisecond)
	defer cancel()
	mustBe(t, second.Wait(brief), context.DeadlineExceeded)
	resumed := newSession(t, cluster).Client().ResumeLease(second.Text)
	must(t, first.Release(background))
	must(t, resumed.Wait(background))
	if resumed.Token <= first.Token {
		t.Errorf("the token %d follows %d", resumed.Token, first.Token)
	}
	must(t, third.Release(background))
	if err := third.Wait(background); lockgate.Code(err) != "lease_expired" {
		t.Errorf("a released lease waits: %v", err)
	}
}

func TestPolledWaitIsGrantedInTurnOrLeavesTheQueue(t *testing.T) {
	s := newSession(t, newCluster(t))
	first, second := lockgate.NewMutex(s, "a"), lockgate.NewMutex(s, "a", lockgate.WithPoll())
	must(t, first.Lock(background))
	mustBe(t, second.TryLock(background), lockgate.ErrLocked)
	mustBe(t, lockgate.NewMutex(s, "a", lockgate.WithPoll(), lockgate.WithWait(50*time.Millisecond)).Lock(background), lockgate.ErrLocked)
	state, err := s.Client().Inspect(background, "a")
	must(t, err)
	if len(state.Queue) != 0 {
		t.Errorf("the queue is %+v", state.Queue)
	}
	released := make(chan error, 1)
	time.AfterFunc(50*time.Millisecond, func() { released <- first.Unlock(background) })
	must(t, second.Lock(background))
	must(t, <-released)
	must(t, second.Check())
	must(t, second.Unlock(background))
}

func TestLeaseIsResumedByItsText(t *testing.T) {
	cluster := newCluster(t)
	s := newSession(t, cluster)
	c := s.Client()
	lease, err := c.AcquireLease(background, "a", 5*time.Second, lockgate.WithWait(0), lockgate.WithNote("nightly"))
	must(t, err)
	mustBe(t, lockgate.NewMutex(s, "a").TryLock(background), lockgate.ErrLocked)
	resumed := newSession(t, cluster).Client().ResumeLease(lease.Text)
	must(t, resumed.Renew(background, 9*time.Second))
	if resumed.ExpiresIn != 9*time.Second || resumed.Token != lease.Token {
		t.Errorf("it was renewed as %+v", resumed)
	}
	state, err := resumed.Inspect(background)
	must(t, err)
	if state.Lock != "a" || state.Note != "nightly" {
		t.Errorf("it is %+v", state)
	}
	must(t, resumed.Release(background))
	must(t, resumed.Release(background))
	if err := lease.Renew(background, 0); lockgate.Code(err) != "lease_expired" {
		t.Errorf("a released lease is renewed: %v", err)
	}
	must(t, lockgate.NewMutex(s, "a").TryLock(background))
}

func TestZnodesAndWatches(t *testing.T) {
	s := newSession(t, newCluster(t))
	c := s.Client()
	path, err := c.Create(background, "/a/b 100%/c", []byte("x"), lockgate.Parents(), lockgate.Ephemeral(s), lockgate.Sequential())
	must(t, err)
	found, err := c.Get(background, path)
	must(t, err)
	changes := make(chan lockgate.Event)
	go func() {
		event, err := c.Watch(background, path, lockgate.WatchData, found.Stat.Mzxid)
		if err != nil {
			t.Error(err)
		}
		changes <- event
	}()
	stat, err := c.Set(background, path, []byte("y"), 0)
	must(t, err)
	if event := <-changes; event.Path != path {
		t.Errorf("the event is %+v", event)
	}
	if err := c.Delete(background, path, 0); lockgate.Code(err) != "bad_version" {
		t.Errorf("an old version was deleted: %v", err)
	}
	names, err := c.Children(background, "/a/b 100%")
	must(t, err)
	if len(names) != 1 || "/a/b 100%/"+names[0] != path {
		t.Errorf("the children are %v", names)
	}
	must(t, c.Delete(background, path, stat.Version))
	if _, err := c.Get(background, path); lockgate.Code(err) != "no_znode" {
		t.Errorf("a deleted znode was read: %v", err)
	}
	if _, err := c.Get(background, "a"); err == nil {
		t.Error("a path without a slash is accepted")
	}
}

func TestCancelledWaitLeavesTheQueueAndGivesLateGrantsBack(t *testing.T) {
	s := newSession(t, newCluster(t))
	for round := 0; round < 30; round++ {
		holder, waiter := lockgate.NewMutex(s, "a"), lockgate.NewMutex(s, "a")
		must(t, holder.Lock(background))
		ctx, cancel := context.WithCancel(background)
		waits := make(chan error)
		go func() { waits <- waiter.Lock(ctx) }()
		eventually(t, "it waits", func() bool { return queued(t, s, "a") == 1 })
		released := make(chan error)
		go func() { released <- holder.Unlock(background) }()
		time.Sleep(time.Duration(round) * 20 * time.Microsecond)
		cancel()
		must(t, <-released)
		if err := <-waits; err == nil {
			must(t, waiter.Unlock(background))
		} else {
			mustBe(t, err, context.Canceled)
		}
		eventually(t, "nothing is left", func() bool { return queued(t, s, "a")+holders(t, s, "a") == 0 })
	}
}

// faulty is a cluster whose server fails in a given way.
type faulty struct {
	cluster *lockgatetest.Cluster
	mu      sync.Mutex
	// faults are those of the next requests, but for heartbeats and streams.
	faults []string
	sent   []map[string]any
	cut    bool
	counts map[string]int
}

// newFaulty returns a cluster and a session of it.
func newFaulty(t *testing.T, ttl int) (*faulty, *lockgate.Session) {
	f := &faulty{cluster: newCluster(t), counts: map[string]int{}}
	server := httptest.NewServer(f)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	client, err := lockgate.New(lockgate.Config{Endpoints: []string{server.Listener.Addr().String()}, Patience: time.Second})
	must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	s, err := lockgate.NewSession(client, lockgate.WithTTL(ttl))
	must(t, err)
	return f, s
}

func (f *faulty) fail(fault string, times int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = nil
	for i := 0; i < times; i++ {
		f.faults = append(f.faults, fault)
	}
}

func (f *faulty) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(strings.NewReader(string(text)))
	sent := map[string]any{"path": r.URL.Path}
	if len(text) > 0 {
		_ = json.Unmarshal(text, &sent)
	}
	last := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	fault := ""
	f.mu.Lock()
	f.sent = append(f.sent, sent)
	cut := f.cut
	if last != "heartbeat" && last != "events" && len(f.faults) > 0 {
		fault, f.faults = f.faults[0], f.faults[1:]
	}
	f.mu.Unlock()
	switch {
	case cut && r.Method == http.MethodGet && last != "events":
		f.question(r)
	case cut:
		f.count("cut "+last, 1)
		fallthrough
	case fault == "unavailable":
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"code":"unavailable"}`)
	case fault == "lost answer":
		f.cluster.ServeHTTP(httptest.NewRecorder(), r)
		if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
			conn.Close()
		}
	default:
		f.cluster.ServeHTTP(w, r)
	}
}

// question is never answered.
func (f *faulty) question(r *http.Request) {
	f.count("questions", 1)
	f.mu.Lock()
	if f.counts["questions"] > f.counts["most questions"] {
		f.counts["most questions"] = f.counts["questions"]
	}
	f.mu.Unlock()
	<-r.Context().Done()
	f.count("questions", -1)
}

func (f *faulty) count(what string, by int) {
	f.mu.Lock()
	f.counts[what] += by
	f.mu.Unlock()
}

func TestLostAnswersAreAskedForAgainUnderOneID(t *testing.T) {
	f, s := newFaulty(t, 10)
	must(t, lockgate.NewMutex(s, "warm").Lock(background))
	f.fail("lost answer", 3)
	semaphore := lockgate.NewSemaphore(s, "s", 5, 1)
	must(t, semaphore.Acquire(background))
	if holders(t, s, "s") != 1 {
		t.Error("the acquire was executed twice")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	ids, retries := map[any]bool{}, 0
	for _, each := range f.sent {
		if each["path"] == "/v1/locks/s/acquire" {
			ids[each["request_id"]] = true
			if each["retry"] != float64(retries) {
				t.Errorf("attempt %d has the number %v", retries, each["retry"])
			}
			retries++
		}
	}
	if len(ids) != 1 || retries != 4 {
		t.Errorf("%d ids in %d attempts", len(ids), retries)
	}
}

func TestManyLeasesHaveResultsOfTheirOwn(t *testing.T) {
	cluster := lockgatetest.NewCluster()
	defer cluster.Close()
	c := newSession(t, cluster).Client()
	taken, err := c.AcquireLease(background, "job-7", time.Minute)
	must(t, err)
	locks := make([]string, 200)
	for i := range locks {
		locks[i] = fmt.Sprintf("job-%d", i)
	}
	before := c.Metrics()["requests"]
	results := c.AcquireLeases(background, locks, time.Minute)
	if got := c.Metrics()["requests"] - before; got != 2 {
		t.Errorf("%d requests for 200 leases", got)
	}
	var leases []*lockgate.Lease
	for i, each := range results {
		if (i == 7) != errors.Is(each.Err, lockgate.ErrLocked) {
			t.Fatalf("lease %d: %v", i, each.Err)
		}
		if each.Err == nil {
			leases = append(leases, each.Lease)
		}
	}
	must(t, taken.Release(background))
	must(t, c.ReleaseLeases(background, leases[:1])[0])
	renewed := c.RenewLeases(background, leases[:2], 2*time.Minute)
	if lockgate.Code(renewed[0]) != "lease_expired" || renewed[1] != nil || leases[1].ExpiresIn != 2*time.Minute {
		t.Errorf("the renewals are %v, %v is left", renewed, leases[1].ExpiresIn)
	}
	for _, err := range c.ReleaseLeases(background, leases) {
		must(t, err)
	}
}

func TestBatchIsSentAgainUnderTheSameIDs(t *testing.T) {
	f, s := newFaulty(t, 10)
	c := s.Client()
	f.fail("lost answer", 2)
	results := c.AcquireLeases(background, []string{"a", "b"}, time.Minute)
	must(t, results[0].Err)
	must(t, results[1].Err)
	f.mu.Lock()
	ids, retries := map[any]bool{}, []any{}
	for _, each := range f.sent {
		requests, _ := each["requests"].([]any)
		for _, request := range requests {
			body := request.(map[string]any)["body"].(map[string]any)
			ids[body["request_id"]] = true
			retries = append(retries, body["retry"])
		}
	}
	f.mu.Unlock()
	if want := []any{0.0, 0.0, 1.0, 1.0, 2.0, 2.0}; len(ids) != 2 || !reflect.DeepEqual(retries, want) {
		t.Errorf("%d ids, retries %v", len(ids), retries)
	}
	f.fail("unavailable", 1000)
	for _, err := range c.ReleaseLeases(background, []*lockgate.Lease{results[0].Lease, results[1].Lease}) {
		if !errors.Is(err, lockgate.ErrUnavailable) {
			t.Errorf("nothing was done, but: %v", err)
		}
	}
	f.fail("", 0)
}

func TestLeasesOfAnEndedContextAreReleased(t *testing.T) {
	f, s := newFaulty(t, 10)
	f.fail("lost answer", 1000)
	ctx, cancel := context.WithTimeout(background, 50*time.Millisecond)
	defer cancel()
	for _, each := range s.Client().AcquireLeases(ctx, []string{"a", "b"}, time.Minute) {
		if !errors.Is(each.Err, lockgate.ErrOutcomeUnknown) {
			t.Errorf("the error is %v", each.Err)
		}
	}
	f.fail("", 0)
	eventually(t, "both are released", func() bool { return holders(t, s, "a")+holders(t, s, "b") == 0 })
}

func TestThreeKindsOfErrorsAreNotMixed(t *testing.T) {
	f, s := newFaulty(t, 10)
	c := s.Client()
	f.fail("unavailable", 1000)
	_, err := c.Create(background, "/a", nil)
	mustBe(t, err, lockgate.ErrUnavailable)
	f.fail("lost answer", 1000)
	_, err = c.Set(background, "/", nil, lockgate.AnyVersion)
	mustBe(t, err, lockgate.ErrOutcomeUnknown)
	_, err = c.Get(background, "/")
	mustBe(t, err, lockgate.ErrUnavailable)
	f.fail("unavailable", 1000)
	f.faults[0] = "lost answer"
	_, err = c.Set(background, "/", nil, lockgate.AnyVersion)
	mustBe(t, err, lockgate.ErrOutcomeUnknown)
	ctx, cancel := context.WithTimeout(background, 100*time.Millisecond)
	defer cancel()
	f.fail("lost answer", 1000)
	_, err = c.Set(ctx, "/", nil, lockgate.AnyVersion)
	mustBe(t, err, lockgate.ErrOutcomeUnknown, context.DeadlineExceeded)
	f.fail("", 0)
	if _, err = c.Get(background, "/missing"); lockgate.Code(err) != "no_znode" {
		t.Errorf("a missing znode: %v", err)
	}
}

func TestAcquireWithoutAnAnswerIsWithdrawn(t *testing.T) {
	f, s := newFaulty(t, 10)
	must(t, lockgate.NewMutex(s, "warm").Lock(background))
	f.fail("lost answer", 30)
	mustBe(t, lockgate.NewMutex(s, "x").TryLock(background), lockgate.ErrOutcomeUnknown)
	f.fail("", 0)
	eventually(t, "it is withdrawn", func() bool { return holders(t, s, "x") == 0 })
}

func TestLocksOfASessionAreAskedForOnceAtATime(t *testing.T) {
	f, s := newFaulty(t, 3)
	m := lockgate.NewMutex(s, "a")
	must(t, m.Lock(background))
	f.mu.Lock()
	f.cut = true
	f.mu.Unlock()
	// The stream ends too.
	<-m.Context().Done()
	var lost *lockgate.Lost
	if !errors.As(m.Check(), &lost) || lost.Reason != "no_heartbeat" {
		t.Errorf("the loss is %v", m.Check())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.counts["cut heartbeat"] <= 3 || f.counts["most questions"] > 1 {
		t.Errorf("the counts are %v", f.counts)
	}
}
