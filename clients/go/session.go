package lockgate

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// longestNap is the longest sleep before the clock is read: timers may not advance while the machine is suspended.
	longestNap = time.Second
	// longestSilence bounds the silence of an event stream. A server writes at least every 15 s and every third of the TTL.
	longestSilence = 45 * time.Second
	// noStreamPause is the pause after a refused stream. Heartbeats continue, and ask which locks are held.
	noStreamPause = 10 * time.Second
)

// Session holds locks. It is opened at the first lock, kept alive in the background, and opened anew after a loss.
type Session struct {
	client *Client
	ttl    time.Duration
	name   string
	// opening has one place, for the goroutine that opens.
	opening chan struct{}

	mu     sync.Mutex
	open   *openSession
	closed bool
}

// SessionOption changes a new session.
type SessionOption func(*Session)

// WithTTL sets the time to live in seconds, after which the cluster gives the locks of a silent process to others. The default is 10.
func WithTTL(seconds int) SessionOption {
	return func(s *Session) { s.ttl = time.Duration(seconds) * time.Second }
}

// WithName sets a text that operators see at the session.
func WithName(name string) SessionOption { return func(s *Session) { s.name = name } }

// NewSession returns a session. It sends no request before the first lock.
func NewSession(client *Client, options ...SessionOption) (*Session, error) {
	s := &Session{client: client, ttl: 10 * time.Second, opening: make(chan struct{}, 1)}
	for _, option := range options {
		option(s)
	}
	if s.ttl <= 0 {
		return nil, errors.New("lockgate: the TTL must be positive")
	}
	client.mu.Lock()
	defer client.mu.Unlock()
	if client.closed {
		return nil, ErrClosed
	}
	client.sessions[s] = true
	return s, nil
}

// Client returns the client of the session.
func (s *Session) Client() *Client { return s.client }

// ID returns the id in the cluster and the granted TTL, or "" before the first lock and after a loss.
func (s *Session) ID() (id string, ttl time.Duration) {
	s.mu.Lock()
	open := s.open
	s.mu.Unlock()
	if open == nil || open.check() != nil {
		return "", 0
	}
	ttl, _, _ = open.times()
	return open.id, ttl
}

// Close ends the session, so that its locks are free at once. Locks that are still held are lost with the reason closed.
func (s *Session) Close() error {
	s.client.mu.Lock()
	delete(s.client.sessions, s)
	s.client.mu.Unlock()
	s.mu.Lock()
	open, before := s.open, s.closed
	s.closed = true
	s.mu.Unlock()
	if before || open == nil {
		return nil
	}
	return open.close(context.Background())
}

// Renew renews the session now. It is renewed in the background anyway.
func (s *Session) Renew(ctx context.Context) error {
	open, err := s.live(ctx)
	if err != nil {
		return err
	}
	return open.renew(ctx)
}

// live returns the open session. It opens one at the first call, and after a loss.
func (s *Session) live(ctx context.Context) (*openSession, error) {
	select {
	case s.opening <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-s.opening }()
	s.mu.Lock()
	open, closed := s.open, s.closed
	s.mu.Unlock()
	if closed {
		return nil, ErrClosed
	}
	if open != nil {
		if open.check() == nil {
			return open, nil
		}
		// The cluster may still have it: others need not wait for its end.
		s.client.background("closing a lost session", open.close)
	}
	open, err := s.openAnew(ctx)
	s.mu.Lock()
	s.open, closed = open, s.closed
	s.mu.Unlock()
	if err == nil && closed {
		s.client.background("closing a session", open.close)
		return nil, ErrClosed
	}
	return open, err
}

// openAnew opens a session. Its TTL is counted from before the first attempt that may have opened it.
func (s *Session) openAnew(ctx context.Context) (*openSession, error) {
	pinned, err := s.client.servers.pinned(ctx)
	if err != nil {
		return nil, err
	}
	body := fields{"ttl_ms": s.ttl.Milliseconds(), "request_id": requestID()}
	if s.name != "" {
		body["name"] = s.name
	}
	sent := now()
	opened, err := askFor[struct {
		Session string
		TTL     int64 `json:"ttl_ms"`
	}](ctx, pinned, post("/v1/sessions", body), s.client.config.Patience)
	if err != nil {
		return nil, err
	}
	ttl := time.Duration(opened.TTL) * time.Millisecond
	if now()-sent > ttl/3 {
		// The first attempt may have opened it long ago.
		sent = now()
		if _, err := pinned.ask(ctx, post("/v1/sessions/"+opened.Session+"/heartbeat", fields{}), s.client.config.Patience); err != nil {
			return nil, err
		}
	}
	s.client.count("sessions_opened")
	o := &openSession{life: newLife(s.client, opened.Session, sent, ttl), servers: pinned, wake: make(chan struct{}, 1)}
	o.tasks.Add(2)
	go o.keepAlive()
	go o.follow()
	return o, nil
}

// openSession is a session of the cluster with its requests: heartbeats, and the event stream.
type openSession struct {
	*life
	servers *servers
	tasks   sync.WaitGroup
	// wake is sent to when a heartbeat has ended.
	wake chan struct{}

	beats heartbeats
}

// heartbeats is what keepAlive knows of the running heartbeats.
type heartbeats struct {
	mu         sync.Mutex
	unanswered map[*server]time.Duration
	suspected  map[*server]bool
	next       time.Duration
	pauses     backoff
	asking     bool
}

func (o *openSession) path(rest string) string { return "/v1/sessions/" + o.id + rest }

func (o *openSession) close(ctx context.Context) error {
	loss := o.check()
	o.lose(&Lost{Reason: "closed"})
	o.tasks.Wait()
	if loss != nil && loss.Reason == "expired" {
		return nil
	}
	total, _, _ := o.times()
	if total > o.client.config.Patience {
		total = o.client.config.Patience
	}
	if loss != nil {
		total = time.Second
	}
	_, err := o.servers.ask(ctx, call{"DELETE", o.path("?request_id=" + requestID()), nil}, total)
	if endsSession(err) {
		return nil
	}
	return err
}

// ask sends a request about a hold: for the patience, or for as long as the session may live without a heartbeat.
func (o *openSession) ask(ctx context.Context, c call) (json.RawMessage, error) {
	total, _, _ := o.times()
	if total < o.client.config.Patience {
		total = o.client.config.Patience
	}
	return o.servers.ask(ctx, c, total)
}

func (o *openSession) heartbeat() call {
	if o.client.config.AtLeader {
		return post(o.path("/heartbeat?leader=true"), fields{})
	}
	return post(o.path("/heartbeat"), fields{})
}

// beatAnswer is the answer to a heartbeat.
type beatAnswer struct {
	TTL      int64 `json:"ttl_ms"`
	Leads    bool
	Requests []heldRequest `json:"release_requested"`
}

func (o *openSession) renew(ctx context.Context) error {
	sent := now()
	answer, err := o.ask(ctx, o.heartbeat())
	if err == nil {
		_, err = o.renewed(sent, answer)
	}
	o.ended(err)
	return err
}

func (o *openSession) renewed(sent time.Duration, answer json.RawMessage) (beatAnswer, error) {
	var beat beatAnswer
	if err := decode(answer, &beat); err != nil {
		return beat, err
	}
	o.confirm(sent, time.Duration(beat.TTL)*time.Millisecond)
	o.noteRequests(sent, beat.Requests)
	return beat, nil
}

// keepAlive renews the session until it is lost: every third of the TTL, and at another server when one is silent for a sixth.
func (o *openSession) keepAlive() {
	defer o.tasks.Done()
	b := &o.beats
	b.unanswered, b.suspected = map[*server]time.Duration{}, map[*server]bool{}
	if _, b.next, _ = o.times(); !o.client.config.AtLeader {
		b.next += o.interval()
	}
	for o.check() == nil {
		nap := o.step() - now()
		if nap > longestNap {
			nap = longestNap
		}
		timer := time.NewTimer(nap)
		select {
		case <-timer.C:
		case <-o.wake:
		case <-o.ctx.Done():
		}
		timer.Stop()
	}
}

// interval returns the time to the next heartbeat: a third of the TTL, or up to a tenth less, so that clients do not beat in step.
func (o *openSession) interval() time.Duration {
	ttl, _, _ := o.times()
	return time.Duration(float64(ttl/3) * (0.9 + 0.1*rand.Float64()))
}

// step sends the heartbeats that are due, and returns the time of the next step.
func (o *openSession) step() time.Duration {
	ttl, _, wake := o.times()
	b := &o.beats
	b.mu.Lock()
	defer b.mu.Unlock()
	for at, sent := range b.unanswered {
		if !b.suspected[at] && now() >= sent+ttl/6 {
			b.suspected[at] = true
			o.servers.suspect(at)
			b.next = now()
		}
	}
	if now() >= b.next {
		b.next = now() + o.interval()
		for _, at := range o.servers.beaten() {
			o.startLocked(at)
		}
		o.mu.Lock()
		blind := !o.followed && len(o.holds) > 0
		o.mu.Unlock()
		// While no server can be reached, heartbeats follow each other faster than questions end.
		if blind && !b.asking {
			b.asking = true
			o.tasks.Add(1)
			go o.askHoldings()
		}
	}
	if b.next < wake {
		wake = b.next
	}
	for at, sent := range b.unanswered {
		if !b.suspected[at] && sent+ttl/6 < wake {
			wake = sent + ttl/6
		}
	}
	return wake
}

// beaten returns the servers that get a heartbeat: the current one, and those at which a call waits, however long its wait is.
func (s *servers) beaten() []*server {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := []*server{s.current}
	for _, at := range s.list {
		if at != s.current && at.waits > 0 {
			found = append(found, at)
		}
	}
	return found
}

// startLocked sends a heartbeat, unless one has no answer yet there.
func (o *openSession) startLocked(at *server) {
	if _, waiting := o.beats.unanswered[at]; waiting {
		return
	}
	sent := now()
	o.beats.unanswered[at] = sent
	o.tasks.Add(1)
	go o.beat(at, sent)
}

func (o *openSession) beat(at *server, sent time.Duration) {
	defer o.tasks.Done()
	ttl, _, _ := o.times()
	ctx, cancel := context.WithTimeout(o.ctx, ttl)
	answer, err := o.servers.send(ctx, at, o.heartbeat())
	cancel()
	var beat beatAnswer
	if err == nil {
		beat, err = o.renewed(sent, answer)
	}
	o.ended(err)
	var refused *Refused
	b := &o.beats
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.unanswered, at)
	delete(b.suspected, at)
	switch {
	case err == nil:
		b.pauses = backoff{}
		o.preferLeaderLocked(at, beat.Leads)
	case errors.As(err, &refused):
		// Every server would refuse. Unless it has ended, the session lives on until its TTL is over.
		o.client.config.Logger.Warn("a heartbeat is refused", "code", refused.Code, "detail", refused.Detail)
	case o.ctx.Err() == nil:
		o.client.config.Logger.Debug("a heartbeat has failed", "error", err)
		o.servers.suspect(at)
		if retry := now() + o.servers.pause(b.pauses.next()); retry < b.next {
			b.next = retry
		}
	}
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// preferLeaderLocked makes the leader the current server. If the current one does not lead, it asks all.
func (o *openSession) preferLeaderLocked(at *server, leads bool) {
	if !o.client.config.AtLeader {
		return
	}
	o.servers.mu.Lock()
	current := o.servers.current
	if leads {
		o.servers.current = at
	}
	o.servers.mu.Unlock()
	if !leads && at == current && o.ctx.Err() == nil {
		for _, other := range o.servers.list {
			o.startLocked(other)
		}
	}
}

// contender is a holder or waiter in a state of the session.
type contender struct{ Holder string }

// askHoldings reads which locks the session holds: without an event stream this finds a broken lock.
func (o *openSession) askHoldings() {
	defer o.tasks.Done()
	asked := now()
	ttl, _, _ := o.times()
	state, err := askFor[struct {
		Held     []contender
		Complete *bool
	}](o.ctx, o.servers, get(o.path("?linearizable=true")), ttl/3)
	switch {
	case err != nil:
		o.ended(err)
		o.client.config.Logger.Debug("the locks of the session are not known", "error", err)
	case state.Complete == nil || *state.Complete:
		o.holdsOnly(asked, state.Held)
	}
	o.beats.mu.Lock()
	o.beats.asking = false
	o.beats.mu.Unlock()
}

// errStreamOver ends a stream that may be opened again at the same server at once.
var errStreamOver = errors.New("the stream is over")

// errNoStream ends a stream that the server refuses for longer.
var errNoStream = errors.New("no stream")

// follow follows the event stream at one server after the other, from the last event on. Fencing tokens are log positions.
func (o *openSession) follow() {
	defer o.tasks.Done()
	select {
	case <-o.granted:
	case <-o.ctx.Done():
		return
	}
	o.mu.Lock()
	last := strconv.FormatUint(o.firstToken, 10)
	o.mu.Unlock()
	at := o.servers.now()
	var pauses backoff
	for o.check() == nil {
		before := last
		err := o.listen(at, &last)
		o.setFollowed(false)
		if last != before {
			pauses = backoff{}
		}
		var pause time.Duration
		switch {
		case errors.Is(err, errStreamOver):
		case errors.Is(err, errNoStream):
			pause = noStreamPause
		default:
			at, pause = o.servers.after(at), pauses.next()
		}
		o.client.config.Logger.Debug("the event stream has ended", "error", err)
		sleep(o.ctx, pause)
	}
}

func (o *openSession) setFollowed(followed bool) {
	o.mu.Lock()
	o.followed = followed
	o.mu.Unlock()
}

// listen applies events until the stream ends, and returns why it has ended.
func (o *openSession) listen(at *server, last *string) error {
	ctx, cancel := context.WithCancel(o.ctx)
	defer cancel()
	silence, _, _ := o.times()
	if silence > longestSilence {
		silence = longestSilence
	}
	watchdog := time.AfterFunc(silence, cancel)
	defer watchdog.Stop()
	r, err := o.servers.request(ctx, at, get(o.path("/events?heartbeat=false")), "")
	if err != nil {
		return err
	}
	r.Header.Set("Last-Event-ID", *last)
	answer, err := o.client.http.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			return err
		}
		if _, err = o.servers.judge(at, answer, text); Code(err) == "" {
			return err
		}
		o.ended(err)
		return fmt.Errorf("%w: %v", errNoStream, err)
	}
	o.setFollowed(true)
	suspected := o.servers.suspicion(at)
	go func() {
		select {
		case <-suspected:
			cancel()
		case <-ctx.Done():
		}
	}()
	lines := bufio.NewReader(answer.Body)
	var id, event, data string
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return err
		}
		watchdog.Reset(silence)
		if line = strings.TrimRight(line, "\r\n"); line != "" {
			name, value, _ := strings.Cut(line, ":")
			value = strings.TrimPrefix(value, " ")
			switch name {
			case "id":
				id = value
			case "event":
				event = value
			case "data":
				data += value
			}
			continue
		}
		var ended error
		if event != "" {
			ended, err = o.apply(event, data)
			if err != nil {
				return err
			}
		}
		// Only now: the next server repeats an event that was not understood.
		if id != "" {
			*last = id
		}
		if ended != nil {
			return ended
		}
		id, event, data = "", "", ""
	}
}

// apply applies an event. It returns why the stream ends with it, or that the event makes no sense.
func (o *openSession) apply(event, data string) (ended, err error) {
	var news struct {
		heldRequest
		Ended         string
		Zxid          uint64
		Held, Awaited []contender
		Requests      []heldRequest `json:"release_requested"`
	}
	switch event {
	case "state", "lost", "release_requested", "session_ended", "stream_ended":
		if err := json.Unmarshal([]byte(data), &news); err != nil {
			return nil, err
		}
	}
	switch event {
	case "state":
		o.holdsAt(news.Zxid, append(news.Held, news.Awaited...))
		for _, each := range news.Requests {
			o.noteRequest(each)
		}
	case "lost":
		loss := &Lost{news.Ended, news.By, news.Reason}
		switch news.Ended {
		case "session_closed", "session_expired":
			// Of the end of the session the next event tells.
			return nil, nil
		case "broken", "deleted", "released", "max_hold":
		default:
			loss.Reason = "taken_away"
		}
		o.locked(func() { o.loseHolderLocked(news.Holder, loss) })
	case "release_requested":
		o.noteRequest(news.heldRequest)
	case "session_ended":
		o.lose(&Lost{Reason: "expired"})
	case "stream_ended":
		switch news.Reason {
		case "renew", "too_slow", "state_replaced":
			return errStreamOver, nil
		case "access_lost":
			return errNoStream, nil
		}
		return errors.New(news.Reason), nil
	}
	return nil, nil
}
