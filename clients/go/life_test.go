package lockgate

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"
)

func newTestClient(t *testing.T) *Client {
	t.Helper()
	client, err := New(Config{Endpoints: []string{"127.0.0.1:1", "127.0.0.1:2"}, Patience: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func newTestLife(t *testing.T, ttl time.Duration) *life {
	return newLife(newTestClient(t), "s", now(), ttl)
}

func TestMarginIsTakenOff(t *testing.T) {
	for ttl, left := range map[time.Duration]time.Duration{
		10 * time.Second:      9800 * time.Millisecond,
		2 * time.Second:       1880 * time.Millisecond,
		50 * time.Millisecond: 0,
	} {
		if l := newLife(nil, "s", time.Hour, ttl); l.validUntil() != time.Hour+left {
			t.Errorf("with a TTL of %v it lives for %v", ttl, l.validUntil()-time.Hour)
		}
	}
}

func TestClockAloneEndsTheSessionAndNothingBringsItBack(t *testing.T) {
	l := newTestLife(t, 120*time.Millisecond)
	h := l.enter(grant{Lock: "job", Holder: "a", Token: 7}, nil)
	time.Sleep(30 * time.Millisecond)
	// The answer to a heartbeat that was sent in time arrives too late.
	l.confirm(l.confirmed+time.Millisecond, time.Minute)
	l.lose(&Lost{Reason: "expired"})
	late := l.enter(grant{Lock: "job", Holder: "late", Token: 8}, nil)
	for _, each := range []*hold{h, late} {
		if loss := each.check(); loss == nil || loss.Reason != "no_heartbeat" {
			t.Errorf("the loss of %s is %v", each.holder, loss)
		}
		if each.ctx.Err() == nil {
			t.Errorf("the context of %s is not cancelled", each.holder)
		}
	}
}

func TestOlderConfirmationShortensNothing(t *testing.T) {
	l := newTestLife(t, time.Minute)
	l.confirm(now()+time.Second, time.Minute)
	before := l.validUntil()
	l.confirm(now()-30*time.Second, time.Minute)
	if l.validUntil() != before {
		t.Error("an older confirmation has moved the deadline")
	}
}

func TestFirstLossReachesHoldersAndLateGrants(t *testing.T) {
	l := newTestLife(t, time.Minute)
	broken := &Lost{"broken", "ip:1.2.3.4", "stuck"}
	held := l.enter(grant{Lock: "job", Holder: "a", Token: 7}, nil)
	l.locked(func() {
		l.loseHolderLocked("a", broken)
		l.loseHolderLocked("late", broken)
	})
	late := l.enter(grant{Lock: "job", Holder: "late", Token: 8}, nil)
	l.lose(&Lost{Reason: "expired"})
	if held.check() != broken || late.check() != broken {
		t.Errorf("the losses are %v and %v", held.check(), late.check())
	}
	if counts := l.client.Metrics(); counts["lost"] != 2 {
		t.Errorf("the counts are %v", counts)
	}
}

func TestStateDoesNotConcernLaterGrants(t *testing.T) {
	l := newTestLife(t, time.Minute)
	old := l.enter(grant{Lock: "a", Holder: "a", Token: 7}, nil)
	later := l.enter(grant{Lock: "b", Holder: "b", Token: 9}, nil)
	l.holdsAt(8, nil)
	if old.check() == nil || old.check().Reason != "taken_away" || later.check() != nil {
		t.Errorf("the losses are %v and %v", old.check(), later.check())
	}
	asked := now()
	answered := l.enter(grant{Lock: "c", Holder: "c", Token: 10}, nil)
	l.holdsOnly(asked, nil)
	if later.check() == nil || answered.check() != nil {
		t.Errorf("the losses are %v and %v", later.check(), answered.check())
	}
}

func TestReleaseRequestIsHandedOverOnce(t *testing.T) {
	l := newTestLife(t, time.Minute)
	asked := make(chan ReleaseRequest, 10)
	h := l.enter(grant{Lock: "job", Holder: "a", Token: 7}, func(r ReleaseRequest) { asked <- r })
	news := heldRequest{"a", ReleaseRequest{"x", "y", "z"}}
	sent := now()
	l.noteRequest(news)
	l.noteRequests(sent, nil)
	if h.request.By != "x" {
		t.Error("an answer from before the request has removed it")
	}
	l.noteRequests(now(), []heldRequest{news})
	l.noteRequests(now()+time.Second, nil)
	if h.request.By != "" {
		t.Error("an answered request is still there")
	}
	<-asked
	select {
	case <-asked:
		t.Error("it was handed over twice")
	case <-time.After(20 * time.Millisecond):
	}
}

func TestAnswersAreJudgedByTheirCode(t *testing.T) {
	client := newTestClient(t)
	at := client.servers.now()
	for _, c := range []struct {
		status     int
		body, kind string
	}{
		{204, ``, "ok"},
		{409, `{"code":"lock_busy"}`, "refused"},
		{410, `{"code":"session_expired"}`, "refused"},
		{503, `{"code":"unavailable"}`, "not executed"},
		{507, `{"code":"read_only"}`, "not executed"},
		{429, `{"code":"too_many_requests"}`, "not executed"},
		{504, `{"code":"outcome_unknown"}`, "uncertain"},
		{503, `{"code":"outcome_unknown"}`, "uncertain"},
		{500, `{"code":"internal"}`, "uncertain"},
		{404, `<html>a proxy</html>`, "uncertain"},
		{200, `<html>`, "uncertain"},
	} {
		_, err := client.servers.judge(at, &http.Response{StatusCode: c.status, Header: http.Header{}}, []byte(c.body))
		kind := "ok"
		var failed *failure
		if errors.As(err, &failed) {
			kind = map[bool]string{true: "uncertain", false: "not executed"}[failed.uncertain]
		} else if err != nil {
			kind = "refused"
		}
		if kind != c.kind {
			t.Errorf("%d %s is %s, not %s", c.status, c.body, kind, c.kind)
		}
	}
}

func TestServerThatNamedATimeComesLast(t *testing.T) {
	client := newTestClient(t)
	first, s := client.servers.now(), client.servers
	answer := &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"2"}}}
	for _, at := range s.list {
		s.judge(at, answer, []byte(`{"code":"too_many_requests"}`))
	}
	first.notBefore = time.Time{}
	s.turnAway(first)
	if s.now() != first || s.pause(0) > 0 {
		t.Error("the only server that named no time is not used")
	}
	first.notBefore = time.Now().Add(time.Minute)
	s.turnAway(first)
	if pause := s.pause(0); s.now() == first || pause < time.Second {
		t.Errorf("the pause is %v", pause)
	}
}

func TestPausesGrowToTheirBound(t *testing.T) {
	var pauses backoff
	if first := pauses.next(); first > firstPause || first < firstPause/2 {
		t.Errorf("the first pause is %v", first)
	}
	for i := 0; i < 20; i++ {
		pauses.next()
	}
	if last := pauses.next(); last > longestPause || last < longestPause/2 {
		t.Errorf("the last pause is %v", last)
	}
}

func TestOperationsHaveNoNamesAndNoIDs(t *testing.T) {
	for path, operation := range map[string]string{
		"/v1/locks/a%2Fb/acquire":                      "POST locks/acquire",
		"/v1/locks/a/release-request/reply":            "POST locks/release-request/reply",
		"/v1/locks/a":                                  "POST locks",
		"/v1/multilock/release":                        "POST multilock/release",
		"/v1/sessions/secret/heartbeat":                "POST sessions/heartbeat",
		"/v1/leases/secret?request_id=1":               "POST leases",
		"/v1/znodes/a/b/c":                             "POST znodes",
		"/v1/watch/locks/x?kind=children&timeout_ms=1": "POST watch",
	} {
		if got := post(path, nil).operation(); got != operation {
			t.Errorf("%s is %s", path, got)
		}
	}
}

func TestAttemptIsASpanWhoseContextTheServerGets(t *testing.T) {
	var parents []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parents = append(parents, r.Header.Get("Traceparent"))
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"code":"no_znode"}`)
	}))
	defer server.Close()
	var spans []string
	client, err := New(Config{
		Endpoints:   []string{strings.TrimPrefix(server.URL, "http://")},
		Traceparent: func(context.Context) string { return "the caller's" },
		StartSpan: func(_ context.Context, operation, server string) (string, func(string)) {
			return "the span's", func(outcome string) { spans = append(spans, operation+" "+outcome) }
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, path := range []string{"/v1/znodes/a", "/v1/sessions/s/heartbeat"} {
		if _, err := client.servers.send(context.Background(), client.servers.current, post(path, nil)); err == nil {
			t.Fatal("it was refused")
		}
	}
	if want := []string{"POST znodes no_znode"}; !reflect.DeepEqual(spans, want) {
		t.Errorf("the spans are %q, not %q", spans, want)
	}
	if want := []string{"the span's", "the caller's"}; !reflect.DeepEqual(parents, want) {
		t.Errorf("the servers got %q, not %q", parents, want)
	}
}

func TestNoServerIsUnavailable(t *testing.T) {
	client := newTestClient(t)
	_, err := client.Verify(context.Background(), "x", 1)
	if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("without a server: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := client.Verify(ctx, "x", 1); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	if _, err := New(Config{Endpoints: []string{"localhost"}}); err == nil {
		t.Error("an endpoint without a port is accepted")
	}
}
