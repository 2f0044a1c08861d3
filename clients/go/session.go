package lockgate

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"math/rand"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// rememberedLosses bounds the losses that are kept because a grant may arrive after its loss.
const rememberedLosses = 256

// Session holds locks. It is opened at the first lock, kept alive in the background, and opened anew after a loss.
type Session struct {
	client *Client
	ttl    time.Duration
	name   string
	mu     sync.Mutex
	life   *life
	closed bool
}

// SessionOption changes a new session.
type SessionOption func(*Session)

// WithTTL sets the time to live in seconds, after which the cluster gives the locks of a silent process to others. The default is 10.
func WithTTL(seconds int) SessionOption {
	return func(s *Session) { s.ttl = time.Duration(seconds) * time.Second }
}

// WithName sets the text that is shown to people who look at the session.
func WithName(name string) SessionOption { return func(s *Session) { s.name = name } }

// NewSession returns a session. It sends no request before the first lock.
func NewSession(client *Client, options ...SessionOption) (*Session, error) {
	s := &Session{client: client, ttl: 10 * time.Second}
	for _, option := range options {
		option(s)
	}
	if s.ttl <= 0 {
		return nil, errors.New("lockgate: the TTL must be positive")
	}
	return s, nil
}

// Client returns the client of the session.
func (s *Session) Client() *Client { return s.client }

// Close ends the session, so that nobody waits for its TTL. Locks that are still held are lost with the reason closed.
func (s *Session) Close() error {
	s.mu.Lock()
	current, before := s.life, s.closed
	s.closed = true
	s.mu.Unlock()
	if before || current == nil {
		return nil
	}
	return current.close()
}

// live returns the life of the session. It opens one at the first call, and after a loss.
func (s *Session) live(ctx context.Context) (*life, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	if s.life != nil && s.life.check() == nil {
		return s.life, nil
	}
	if lost := s.life; lost != nil {
		// The cluster may still have it: others need not wait for its end.
		go func() {
			if err := lost.close(); err != nil {
				s.client.config.Logf("lockgate: closing a lost session: %v", err)
			}
		}()
	}
	s.life = nil
	pinned, err := s.client.servers.pinned(ctx)
	if err != nil {
		return nil, err
	}
	body := fields{"ttl_ms": s.ttl.Milliseconds(), "request_id": requestID()}
	if s.name != "" {
		body["name"] = s.name
	}
	var opened struct {
		Session string
		TTL     int64 `json:"ttl_ms"`
	}
	sent := now()
	if err := pinned.ask(ctx, "POST", "/v1/sessions", body, s.client.config.Patience, &opened); err != nil {
		return nil, err
	}
	l := &life{servers: pinned, id: opened.Session, holds: map[string]*hold{}, gone: map[string]*Lost{},
		done: make(chan struct{}), granted: make(chan struct{})}
	// The first attempt may have opened it long ago: then the deadline is already near, and the first heartbeat is sent at once.
	l.confirm(sent, time.Duration(opened.TTL)*time.Millisecond)
	s.life = l
	go l.keepAlive()
	go l.follow()
	return l, nil
}

// life is one session of the cluster, from its opening to its loss. A lost life is never used again.
type life struct {
	servers *servers
	id      string
	done    chan struct{}
	granted chan struct{}

	mu         sync.Mutex
	ttl        time.Duration
	confirmed  time.Duration
	validUntil time.Duration
	loss       *Lost
	holds      map[string]*hold
	gone       map[string]*Lost
	goneOrder  []string
	firstToken uint64
}

// hold is one granted lock. Its token and mode are guarded by the mutex of its life.
type hold struct {
	life         *life
	lock, holder string
	token        uint64
	mode         string
	ctx          context.Context
	cancel       context.CancelFunc
	loss         *Lost
}

// confirm notes that a heartbeat which was sent at this time has been answered.
func (l *life) confirm(sent, ttl time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if sent >= l.confirmed {
		l.confirmed, l.ttl = sent, ttl
		l.validUntil = sent + ttl - ttl/100 - 100*time.Millisecond
	}
}

// check returns the loss of the session. It reads the clock itself, so that a process that was paused finds the loss first.
func (l *life) check() *Lost {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.loss == nil && now() >= l.validUntil {
		l.loseLocked(&Lost{Reason: "no_heartbeat"})
	}
	return l.loss
}

func (l *life) lose(loss *Lost) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loseLocked(loss)
}

func (l *life) loseLocked(loss *Lost) {
	if l.loss != nil {
		return
	}
	l.loss = loss
	close(l.done)
	for holder := range l.holds {
		l.loseHolderLocked(holder, loss)
	}
}

func (l *life) loseHolderLocked(holder string, loss *Lost) {
	if l.gone[holder] == nil {
		l.gone[holder] = loss
		if l.goneOrder = append(l.goneOrder, holder); len(l.goneOrder) > rememberedLosses {
			delete(l.gone, l.goneOrder[0])
			l.goneOrder = l.goneOrder[1:]
		}
	}
	if h := l.holds[holder]; h != nil {
		delete(l.holds, holder)
		h.loss = loss
		h.cancel()
		l.servers.client.config.Logf("lockgate: %s: %v", h.lock, loss)
	}
}

type grant struct {
	Lock, Holder, Mode string
	Token              uint64 `json:"fencing_token"`
}

// enter adds a grant. From the first one on the event stream is followed.
func (l *life) enter(lock string, g grant) *hold {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := &hold{life: l, lock: lock, holder: g.Holder, token: g.Token, mode: g.Mode}
	ctx, cancel := context.WithCancel(context.Background())
	h.ctx, h.cancel = context.WithValue(ctx, causeKey{}, h), cancel
	if l.firstToken == 0 {
		l.firstToken = g.Token
		close(l.granted)
	}
	l.holds[g.Holder] = h
	if loss := l.gone[g.Holder]; loss != nil {
		l.loseHolderLocked(g.Holder, loss)
	} else if l.loss != nil {
		l.loseHolderLocked(g.Holder, l.loss)
	}
	return h
}

type causeKey struct{}

// Cause returns the *Lost by which the context of a lock was cancelled, or nil.
func Cause(ctx context.Context) error {
	if h, ok := ctx.Value(causeKey{}).(*hold); ok {
		return h.check()
	}
	return nil
}

// check returns the *Lost of the hold, by the clock and without a request.
func (h *hold) check() error {
	h.life.check()
	h.life.mu.Lock()
	defer h.life.mu.Unlock()
	if h.loss != nil {
		return h.loss
	}
	return nil
}

func (l *life) ended(err error) {
	var refused *Refused
	if errors.As(err, &refused) && refused.endsSession() {
		l.lose(&Lost{Reason: "expired"})
	}
}

func (l *life) close() error {
	loss := l.check()
	l.lose(&Lost{Reason: "closed"})
	if loss != nil && loss.Reason == "expired" {
		return nil
	}
	total := l.servers.client.config.Patience
	if loss != nil {
		total = time.Second
	}
	err := l.servers.ask(context.Background(), "DELETE", "/v1/sessions/"+l.id+"?request_id="+requestID(), nil, total, nil)
	var refused *Refused
	if errors.As(err, &refused) && refused.endsSession() {
		return nil
	}
	return err
}

// keepAlive sends a heartbeat every third of the TTL, and to another server when one is silent for a sixth.
func (l *life) keepAlive() {
	ended := make(chan beatEnd)
	unanswered := map[*server]time.Duration{}
	suspected := map[*server]bool{}
	pause := firstPause
	next := l.confirmed + l.ttl/3
	for l.check() == nil {
		l.mu.Lock()
		ttl, until := l.ttl, l.validUntil
		l.mu.Unlock()
		wake := until
		for at, sent := range unanswered {
			if suspected[at] {
				continue
			}
			if now() >= sent+ttl/6 {
				suspected[at] = true
				l.servers.suspect(at)
				next = now()
			} else if sent+ttl/6 < wake {
				wake = sent + ttl/6
			}
		}
		if now() >= next {
			next = now() + time.Duration(float64(ttl/3)*(0.9+0.1*rand.Float64()))
			for at := range l.servers.beaten() {
				if _, waiting := unanswered[at]; !waiting {
					unanswered[at] = now()
					go l.beat(at, now(), ttl, ended)
				}
			}
			continue
		}
		if next < wake {
			wake = next
		}
		nap := wake - now()
		// Timers may not advance during a suspend.
		if nap > time.Second {
			nap = time.Second
		}
		timer := time.NewTimer(nap)
		select {
		case <-timer.C:
		case <-l.done:
		case end := <-ended:
			delete(unanswered, end.at)
			delete(suspected, end.at)
			if !end.failed {
				pause = firstPause
			} else if retry := now() + l.servers.pause(&pause); retry < next {
				next = retry
			}
		}
		timer.Stop()
	}
}

type beatEnd struct {
	at     *server
	failed bool
}

// beaten returns the servers that get a heartbeat: the current one, and those at which a call waits.
func (s *servers) beaten() map[*server]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[*server]bool{s.list[s.current]: true}
	for _, at := range s.list {
		if at.waits > 0 {
			found[at] = true
		}
	}
	return found
}

func (l *life) beat(at *server, sent, ttl time.Duration, ended chan<- beatEnd) {
	ctx, cancel := context.WithTimeout(context.Background(), ttl)
	defer cancel()
	var answer struct {
		TTL int64 `json:"ttl_ms"`
	}
	err := l.servers.send(ctx, at, "POST", "/v1/sessions/"+l.id+"/heartbeat", fields{}, &answer)
	failed := false
	switch err.(type) {
	case nil:
		l.confirm(sent, time.Duration(answer.TTL)*time.Millisecond)
	case *Refused:
		l.ended(err)
	default:
		failed = true
		l.servers.suspect(at)
	}
	select {
	case ended <- beatEnd{at, failed}:
	case <-l.done:
	}
}

// follow follows the event stream, at one server after the other, from the last event on. Fencing tokens are log positions.
func (l *life) follow() {
	select {
	case <-l.granted:
	case <-l.done:
		return
	}
	l.mu.Lock()
	last := strconv.FormatUint(l.firstToken, 10)
	l.mu.Unlock()
	at, pause := 0, firstPause
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		<-l.done
		cancel()
	}()
	for l.check() == nil {
		before := last
		err := l.listen(ctx, l.servers.list[at], &last)
		if last != before {
			pause = firstPause
		}
		if err != nil && l.check() == nil {
			l.servers.client.config.Logf("lockgate: the events of a session are followed elsewhere: %v", err)
			at = (at + 1) % len(l.servers.list)
		}
		sleep(ctx, l.servers.pause(&pause))
	}
}

func (l *life) listen(ctx context.Context, at *server, last *string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l.mu.Lock()
	silence := l.ttl
	l.mu.Unlock()
	if silence > 45*time.Second {
		silence = 45 * time.Second
	}
	watchdog := time.AfterFunc(silence, cancel)
	defer watchdog.Stop()
	r, err := l.servers.request(ctx, at, "GET", "/v1/sessions/"+l.id+"/events?heartbeat=false", nil)
	if err != nil {
		return err
	}
	r.Header.Set("Last-Event-ID", *last)
	answer, err := l.servers.client.http.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return errors.New("no event stream: " + answer.Status)
	}
	lines := bufio.NewReader(answer.Body)
	var id, event, data string
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return err
		}
		watchdog.Reset(silence)
		line = strings.TrimRight(line, "\r\n")
		if line != "" {
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
		if event != "" {
			if event == "stream_ended" {
				return nil
			}
			if err := l.apply(event, data); err != nil {
				return err
			}
		}
		// Only now: the next server repeats an event that was not understood.
		if id != "" {
			*last = id
		}
		id, event, data = "", "", ""
	}
}

func (l *life) apply(event, data string) error {
	var news struct {
		Holder, Ended, By, Reason string
		Zxid                      uint64
		Held, Awaited             []struct{ Holder string }
	}
	switch event {
	case "lost", "state":
		if err := json.Unmarshal([]byte(data), &news); err != nil {
			return err
		}
	case "session_ended":
		l.lose(&Lost{Reason: "expired"})
		return nil
	default:
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if event == "lost" {
		switch news.Ended {
		case "session_closed", "session_expired":
			// Of the end of the session the next event tells.
		case "broken", "deleted", "released", "max_hold":
			l.loseHolderLocked(news.Holder, &Lost{news.Ended, news.By, news.Reason})
		default:
			l.loseHolderLocked(news.Holder, &Lost{"taken_away", news.By, news.Reason})
		}
		return nil
	}
	known := map[string]bool{}
	for _, contender := range append(news.Held, news.Awaited...) {
		known[contender.Holder] = true
	}
	for holder, h := range l.holds {
		if !known[holder] && h.token <= news.Zxid {
			l.loseHolderLocked(holder, &Lost{Reason: "taken_away"})
		}
	}
	return nil
}
