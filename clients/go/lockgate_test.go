package lockgate

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// session returns a session at the cluster that LOCKGATE_SERVERS names.
func session(t *testing.T) *Session {
	t.Helper()
	servers := os.Getenv("LOCKGATE_SERVERS")
	if servers == "" {
		t.Skip("LOCKGATE_SERVERS names no cluster")
	}
	client, err := New(Config{Endpoints: strings.Split(servers, ","), Logf: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSession(client, WithTTL(3))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		client.Close()
	})
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestMutexExcludesAndReleases(t *testing.T) {
	ctx, name := context.Background(), "go/mutex/"+requestID()
	a, b := NewMutex(session(t), name), NewMutex(session(t), name)
	must(t, a.Lock(ctx))
	first := a.Token()
	if err := b.TryLock(ctx); !errors.Is(err, ErrLocked) {
		t.Fatalf("a try at a held lock: %v", err)
	}
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if err := b.Lock(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a wait that ends: %v", err)
	}
	held, err := a.Verify(ctx)
	must(t, err)
	if !held || a.Check() != nil {
		t.Fatal("the lock is not held")
	}
	must(t, a.Unlock(ctx))
	if err := a.Unlock(ctx); err != ErrNotHeld {
		t.Fatalf("a second release: %v", err)
	}
	must(t, b.Lock(ctx))
	if b.Token() <= first {
		t.Fatalf("fencing token %d after %d", b.Token(), first)
	}
	must(t, b.Unlock(ctx))
}

func TestSessionOutlivesItsTTL(t *testing.T) {
	m := NewMutex(session(t), "go/alive/"+requestID())
	must(t, m.Lock(context.Background()))
	time.Sleep(4 * time.Second)
	must(t, m.Check())
	must(t, m.Unlock(context.Background()))
}

func TestBrokenLockCancelsItsContextWithTheReason(t *testing.T) {
	ctx, s := context.Background(), session(t)
	m := NewMutex(s, "go-broken-"+requestID())
	must(t, m.Lock(ctx))
	body := fields{"holder": m.hold.holder, "reason": "stuck", "request_id": requestID()}
	must(t, s.client.servers.ask(ctx, "POST", "/v1/locks/"+m.name+"/break", body, 5*time.Second, nil))
	select {
	case <-m.Context().Done():
	case <-time.After(2 * time.Second):
		t.Fatal("the loss was not told")
	}
	var lost *Lost
	if !errors.As(Cause(m.Context()), &lost) || lost.Reason != "broken" || lost.Detail != "stuck" {
		t.Fatalf("cause: %v", Cause(m.Context()))
	}
	if err := m.Unlock(ctx); !errors.As(err, &lost) {
		t.Fatalf("release of a lost lock: %v", err)
	}
}

func TestSharedAndSemaphore(t *testing.T) {
	ctx, name := context.Background(), "go/modes/"+requestID()
	a, b := session(t), session(t)
	r1, r2 := NewRWMutex(a, name), NewRWMutex(b, name)
	must(t, r1.RLock(ctx))
	must(t, r2.RLock(ctx))
	must(t, r1.RUnlock(ctx))
	must(t, r2.RUnlock(ctx))
	must(t, r1.Lock(ctx))
	must(t, r1.Unlock(ctx))
	s1, s2 := NewSemaphore(a, name+"/s", 3, 2), NewSemaphore(b, name+"/s", 3, 2)
	must(t, s1.Acquire(ctx))
	if err := s2.TryAcquire(ctx); !errors.Is(err, ErrLocked) {
		t.Fatalf("too many permits: %v", err)
	}
	must(t, s1.Release(ctx))
	must(t, s2.Acquire(ctx))
	must(t, s2.Release(ctx))
}

func TestCloseTellsTheHolders(t *testing.T) {
	s := session(t)
	m := NewMutex(s, "go/close/"+requestID())
	must(t, m.Lock(context.Background()))
	must(t, s.Close())
	var lost *Lost
	if !errors.As(m.Check(), &lost) || lost.Reason != "closed" {
		t.Fatalf("after close: %v", m.Check())
	}
}

func TestAnswersAreJudgedByTheirCode(t *testing.T) {
	client, err := New(Config{Endpoints: []string{"127.0.0.1:1"}, Patience: 100 * time.Millisecond})
	must(t, err)
	at := client.servers.now()
	for _, c := range []struct {
		status     int
		body, kind string
	}{
		{200, `{}`, "ok"},
		{409, `{"code":"lock_busy"}`, "refused"},
		{503, `{"code":"unavailable"}`, "not executed"},
		{507, `{"code":"read_only"}`, "not executed"},
		{504, `{"code":"outcome_unknown"}`, "uncertain"},
		{500, `{"code":"internal"}`, "uncertain"},
		{404, `a proxy`, "uncertain"},
	} {
		kind := "ok"
		switch client.servers.judge(at, &http.Response{StatusCode: c.status, Header: http.Header{}}, []byte(c.body), nil).(type) {
		case *Refused:
			kind = "refused"
		case *notExecuted:
			kind = "not executed"
		case *uncertain:
			kind = "uncertain"
		}
		if kind != c.kind {
			t.Errorf("%d %s is %s, not %s", c.status, c.body, kind, c.kind)
		}
	}
	var unavailable *Unavailable
	if _, err := client.Verify(context.Background(), "x", 1); !errors.As(err, &unavailable) {
		t.Errorf("without a server: %v", err)
	}
}
