package lockgate

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mrand "math/rand"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// An election takes some hundred milliseconds; a longer pause would lengthen every failover.
	firstPause   = 10 * time.Millisecond
	longestPause = 250 * time.Millisecond
	// A request that is dropped too early has an unknown outcome, so an attempt has this time however little of the total is left.
	shortestTry = 500 * time.Millisecond
	longestTry  = 5 * time.Second
)

type fields map[string]any

// call is a request of the API.
type call struct {
	method, path string
	body         fields
}

// post returns a call with a document.
func post(path string, body fields) call { return call{"POST", path, body} }

func get(path string) call { return call{"GET", path, nil} }

// inBackground says whether the call belongs to no caller, and so to no trace.
func (c call) inBackground() bool {
	operation := c.operation()
	return operation == "POST sessions/heartbeat" || operation == "POST leases/renew"
}

// operation returns the name of the call for logs and metrics, without names of locks and znodes, and without ids, which may be secret.
func (c call) operation() string {
	parts := strings.Split(strings.SplitN(c.path, "?", 2)[0], "/")[2:]
	switch parts[0] {
	case "locks", "sessions", "leases":
		if len(parts) > 2 {
			return c.method + " " + parts[0] + "/" + strings.Join(parts[2:], "/")
		}
	case "multilock":
		return c.method + " " + strings.Join(parts, "/")
	}
	return c.method + " " + parts[0]
}

// segment encodes a name as one segment of a path.
func segment(name string) string { return url.PathEscape(name) }

func requestID() string {
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		panic("lockgate: no random numbers: " + err.Error())
	}
	return hex.EncodeToString(id[:])
}

func milliseconds(d time.Duration) int64 {
	if d > 0 && d < time.Millisecond {
		return 1
	}
	return d.Milliseconds()
}

// backoff gives growing pauses with jitter: clients that lost the same server should not return at the same moment.
type backoff struct{ last time.Duration }

func (b *backoff) next() time.Duration {
	if b.last = 2 * b.last; b.last == 0 {
		b.last = firstPause
	} else if b.last > longestPause {
		b.last = longestPause
	}
	return b.last/2 + time.Duration(mrand.Int63n(int64(b.last/2)))
}

// server is one server. Its fields are guarded by the mutex of its servers.
type server struct {
	address   string
	notBefore time.Time
	// suspected is closed, and replaced, when the server leaves a heartbeat without an answer.
	suspected chan struct{}
	// waits is the number of calls of a session that wait here.
	waits int
}

// servers repeats requests at one server after the other. It knows no sessions and no locks.
type servers struct {
	client  *Client
	token   func(context.Context) (string, error)
	list    []*server
	mu      sync.Mutex
	current *server
}

// newServers begins at a server at random, so that clients with the same list spread.
func newServers(c *Client, token func(context.Context) (string, error)) *servers {
	s := &servers{client: c, token: token}
	for _, address := range c.config.Endpoints {
		s.list = append(s.list, &server{address: address, suspected: make(chan struct{})})
	}
	s.current = s.list[mrand.New(mrand.NewSource(time.Now().UnixNano())).Intn(len(s.list))]
	return s
}

// pinned returns the same servers with the token of this moment: no other token may use the session.
func (s *servers) pinned(ctx context.Context) (*servers, error) {
	if s.token == nil {
		return newServers(s.client, nil), nil
	}
	token, err := s.token(ctx)
	if err != nil {
		return nil, undecided(false, "the provider of tokens has failed: "+err.Error(), err)
	}
	return newServers(s.client, StaticToken(token)), nil
}

func (s *servers) now() *server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

func (s *servers) after(at *server) *server {
	for i, each := range s.list {
		if each == at {
			return s.list[(i+1)%len(s.list)]
		}
	}
	panic("lockgate: a server of another list")
}

// turnAway makes the next server the current one, unless another call has done so. Servers that named a time come last.
func (s *servers) turnAway(from *server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != from {
		return
	}
	free := func(at *server) time.Duration {
		if wait := time.Until(at.notBefore); wait > 0 {
			return wait
		}
		return 0
	}
	best := s.after(from)
	for at := s.after(best); at != best; at = s.after(at) {
		if free(at) < free(best) {
			best = at
			break
		}
	}
	s.current = best
}

// suspect notifies the calls that wait at this server, and changes to another one.
func (s *servers) suspect(silent *server) {
	s.mu.Lock()
	close(silent.suspected)
	silent.suspected = make(chan struct{})
	s.mu.Unlock()
	s.client.config.Logger.Debug("a server is suspected", "server", silent.address)
	s.turnAway(silent)
}

// suspicion returns the channel that is closed when this server is suspected next.
func (s *servers) suspicion(at *server) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return at.suspected
}

// pause returns the time until the next attempt: this pause, or longer if the next server has named a time.
func (s *servers) pause(wait time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if named := time.Until(s.current.notBefore); named > wait {
		return named
	}
	return wait
}

// request returns the request of a call, with the trace context parent, or that of the caller.
func (s *servers) request(ctx context.Context, at *server, c call, parent string) (*http.Request, error) {
	var content io.Reader
	if c.body != nil {
		text, err := json.Marshal(c.body)
		if err != nil {
			return nil, fmt.Errorf("lockgate: %w", err)
		}
		content = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, c.method, s.client.scheme+"://"+at.address+c.path, content)
	if err != nil {
		return nil, fmt.Errorf("lockgate: %w", err)
	}
	if c.body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if s.token != nil {
		token, err := s.token(ctx)
		if err != nil {
			return nil, &failure{"the provider of tokens has failed: " + err.Error(), false}
		}
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if trace := s.client.config.Traceparent; trace != nil && parent == "" {
		parent = trace(ctx)
	}
	if parent != "" {
		r.Header.Set("Traceparent", parent)
	}
	return r, nil
}

// send makes one attempt. Its error is a *Refused or a *failure, or says that the request cannot be sent at all.
func (s *servers) send(ctx context.Context, at *server, c call) (json.RawMessage, error) {
	began, operation := time.Now(), c.operation()
	parent, end := "", func(string) {}
	if start := s.client.config.StartSpan; start != nil && !c.inBackground() {
		parent, end = start(ctx, operation, at.address)
	}
	answer, err := s.attempt(ctx, at, c, parent)
	outcome := "ok"
	var refused *Refused
	var failed *failure
	switch {
	case err == nil:
	case errors.As(err, &refused):
		outcome = refused.Code
	case errors.As(err, &failed) && !failed.uncertain:
		outcome = "unavailable"
	default:
		outcome = "unknown"
	}
	s.client.observe(operation, outcome, time.Since(began))
	end(outcome)
	return answer, err
}

func (s *servers) attempt(ctx context.Context, at *server, c call, parent string) (json.RawMessage, error) {
	// A request that never got a connection was not sent.
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	r, err := s.request(httptrace.WithClientTrace(ctx, trace), at, c, parent)
	if err != nil {
		return nil, err
	}
	answer, err := s.client.http.Do(r)
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			// Without the address of the request, which may be secret.
			err = wrapped.Err
		}
		return nil, &failure{at.address + ": " + err.Error(), connected.Load()}
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, &failure{at.address + ": " + err.Error(), true}
	}
	return s.judge(at, answer, text)
}

// judge decides by the code of the answer alone.
func (s *servers) judge(at *server, answer *http.Response, text []byte) (json.RawMessage, error) {
	if answer.StatusCode/100 == 2 {
		if text = bytes.TrimSpace(text); len(text) == 0 {
			return json.RawMessage("{}"), nil
		}
		if json.Valid(text) {
			return text, nil
		}
	}
	var problem struct{ Code, Detail string }
	if err := json.Unmarshal(text, &problem); err != nil || problem.Code == "" {
		// Not from a server of the cluster: a proxy's page, for example.
		return nil, &failure{fmt.Sprintf("%s: status %d without a code", at.address, answer.StatusCode), true}
	}
	why := at.address + ": " + problem.Code + ": " + problem.Detail
	switch problem.Code {
	case "unavailable", "read_only", "request_timeout", "too_many_requests":
		seconds, err := strconv.ParseFloat(answer.Header.Get("Retry-After"), 64)
		if err != nil || seconds < 0 {
			seconds = 0
		}
		s.mu.Lock()
		at.notBefore = time.Now().Add(time.Duration(seconds * float64(time.Second)))
		s.mu.Unlock()
		return nil, &failure{why, false}
	}
	if problem.Code == "outcome_unknown" || answer.StatusCode/100 != 4 {
		return nil, &failure{why, true}
	}
	return nil, &Refused{Code: problem.Code, Detail: problem.Detail, Status: answer.StatusCode, Problem: text}
}

// longestPoll returns the longest time of a long poll, whose answer has to arrive in the time of an attempt.
func (c *Client) longestPoll() time.Duration { return c.answerWithin * 4 / 5 }

// poll sends a long poll, whose path ends with the parameter of its time. It waits for this time or for less, and its retries have the whole
// patience.
func (s *servers) poll(ctx context.Context, path string, wait time.Duration) (json.RawMessage, error) {
	if bound := s.client.longestPoll(); wait > bound {
		wait = bound
	}
	return s.ask(ctx, get(path+"="+strconv.FormatInt(wait.Milliseconds(), 10)), wait+s.client.config.Patience)
}

// ask sends an idempotent request until a server gives a definite answer, or the time is over.
func (s *servers) ask(ctx context.Context, c call, total time.Duration) (json.RawMessage, error) {
	deadline, within := time.Now().Add(total), s.client.answerWithin
	known := attempts{changes: c.method != "GET"}
	var pauses backoff
	for {
		at := s.now()
		answer, err := s.once(ctx, within, at, c)
		if err, definite := known.take(err); definite {
			return answer, err
		}
		if within = s.again(ctx, at, &pauses, deadline); within == 0 {
			return nil, undecided(known.inDoubt, known.why, ctx.Err())
		}
		s.client.config.Logger.Debug("a request is sent again", "operation", c.operation(), "why", known.why)
	}
}

// once makes one attempt, which may take this time.
func (s *servers) once(ctx context.Context, within time.Duration, at *server, c call) (json.RawMessage, error) {
	if s.client.isClosed() {
		return nil, ErrClosed
	}
	attempt, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return s.send(attempt, at, c)
}

// again waits before the next attempt, which goes to another server. It returns the time for that attempt, or 0 if none is left or the context
// has ended.
func (s *servers) again(ctx context.Context, at *server, pauses *backoff, deadline time.Time) time.Duration {
	s.turnAway(at)
	wait := s.pause(pauses.next())
	if time.Until(deadline) <= wait || !sleep(ctx, wait) {
		return 0
	}
	within := time.Until(deadline)
	if within < shortestTry {
		within = shortestTry
	}
	if within > s.client.answerWithin {
		within = s.client.answerWithin
	}
	return within
}

// askFor asks, and decodes the answer.
func askFor[T any](ctx context.Context, s *servers, c call, total time.Duration) (T, error) {
	var found T
	answer, err := s.ask(ctx, c, total)
	if err == nil {
		err = decode(answer, &found)
	}
	return found, err
}

func decode(answer json.RawMessage, into any) error {
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("lockgate: an answer that makes no sense: %w", err)
	}
	return nil
}

// sleep returns false if the context ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
