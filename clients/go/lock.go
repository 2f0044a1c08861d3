package lockgate

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Mode is how a lock is held.
type Mode string

const (
	// Exclusive excludes all other holders.
	Exclusive Mode = "exclusive"
	// Shared allows other shared holders, and one upgradeable holder.
	Shared Mode = "shared"
	// Upgradeable allows shared holders, and may become exclusive: for reading now and possibly writing later.
	Upgradeable Mode = "upgradeable"

	semaphore Mode = "semaphore"
)

// LockOption changes how a lock is acquired.
type LockOption func(*handle)

// WithMode sets the mode of a Mutex.
func WithMode(mode Mode) LockOption { return func(h *handle) { h.mode = mode } }

// WithWait bounds the time in the queue: after it the error matches ErrLocked. The context bounds the whole call, retries included.
func WithWait(wait time.Duration) LockOption {
	return func(h *handle) {
		if h.wait = wait; wait < 0 {
			h.wait = 0
		}
	}
}

// WithOwner lets the same owner of the session acquire the lock again that it holds. Each acquire needs a release.
func WithOwner(owner string) LockOption {
	return func(h *handle) { h.body["owner"], h.reentrant = owner, true }
}

// WithNote sets the text that others see at the holder, of at most 1,024 bytes.
func WithNote(note string) LockOption { return func(h *handle) { h.body["note"] = note } }

// WithLockDelay keeps the lock closed for this time after the session has expired, because its last writes may still be on their way.
func WithLockDelay(delay time.Duration) LockOption {
	return func(h *handle) { h.body["lock_delay_ms"] = milliseconds(delay) }
}

// WithMinHold keeps others from the lock for this time after the grant, even if it is released earlier.
func WithMinHold(bound time.Duration) LockOption {
	return func(h *handle) { h.body["min_hold_ms"] = milliseconds(bound) }
}

// WithMaxHold ends the hold after this time, even if the session lives on.
func WithMaxHold(bound time.Duration) LockOption {
	return func(h *handle) { h.body["max_hold_ms"] = milliseconds(bound) }
}

// WithPoll keeps no connection open while a call waits, but asks by long polls: for proxies that cut idle connections. Not for a MultiMutex.
func WithPoll() LockOption { return func(h *handle) { h.body["wait"] = "queue" } }

// OnReleaseRequest calls back, in a goroutine of its own, when another caller asks for the lock.
func OnReleaseRequest(callback func(ReleaseRequest)) LockOption {
	return func(h *handle) { h.onRequest = callback }
}

// Want is one of several locks. The zero mode is exclusive. With Permits it is a semaphore, whose Limit is 0 if it is set already.
type Want struct {
	Name           string
	Mode           Mode
	Limit, Permits int
}

func (w Want) request(reentrant bool) fields {
	if w.Permits > 0 {
		w.Mode = semaphore
	} else if w.Mode == "" {
		w.Mode = Exclusive
	}
	body := fields{"mode": w.Mode}
	if w.Mode != semaphore {
		// Without an owner nothing is entered again: two goroutines would hold one lock.
		body["reentrant"] = reentrant
		return body
	}
	body["permits"] = w.Permits
	if w.Limit > 0 {
		body["limit"] = w.Limit
	}
	return body
}

// grants is what one acquire has got.
type grants struct {
	open  *openSession
	holds []*hold
	// ctx is cancelled at the first loss, and at the release.
	ctx      context.Context
	cancel   context.CancelFunc
	released atomic.Bool
}

type causeKey struct{}

func newGrants(open *openSession, holds []*hold) *grants {
	g := &grants{open: open, holds: holds}
	g.ctx, g.cancel = context.WithCancel(context.WithValue(holds[0].ctx, causeKey{}, g))
	for _, other := range holds[1:] {
		go func(h *hold) { follow(g.ctx, h.ctx, g.cancel) }(other)
	}
	return g
}

// follow calls cancel when the other context ends, unless ctx ends before.
func follow(ctx, other context.Context, cancel context.CancelFunc) {
	select {
	case <-other.Done():
		cancel()
	case <-ctx.Done():
	}
}

// check returns a *Lost or ErrNotHeld, by the clock and without a request.
func (g *grants) check() error {
	for _, h := range g.holds {
		if loss := h.check(); loss != nil {
			return loss
		}
	}
	if g.released.Load() {
		return ErrNotHeld
	}
	return nil
}

// Cause returns why the context of a lock has ended: a *Lost, or ErrNotHeld after the release. It returns nil while the lock is held, and for
// other contexts.
func Cause(ctx context.Context) error {
	if g, ok := ctx.Value(causeKey{}).(*grants); ok {
		return g.check()
	}
	return nil
}

// handle is the part that all kinds of locks share.
type handle struct {
	session   *Session
	wants     []Want
	mode      Mode
	wait      time.Duration
	body      fields
	reentrant bool
	onRequest func(ReleaseRequest)

	mu   sync.Mutex
	held *grants
	// last is the latest grants, released or not.
	last *grants
}

func newHandle(s *Session, wants []Want, options []LockOption) *handle {
	h := &handle{session: s, wants: wants, wait: forever, body: fields{}}
	for _, option := range options {
		option(h)
	}
	if h.mode != "" && h.wants[0].Mode == "" {
		h.wants[0].Mode = h.mode
	}
	return h
}

// request returns path and body of the acquire.
func (h *handle) request() (string, fields) {
	body, path := fields{}, "/v1/multilock/acquire"
	if len(h.wants) == 1 {
		path, body = "/v1/locks/"+segment(h.wants[0].Name)+"/acquire", h.wants[0].request(h.reentrant)
	} else {
		locks := []fields{}
		for _, want := range h.wants {
			lock := want.request(h.reentrant)
			lock["name"] = want.Name
			locks = append(locks, lock)
		}
		body["locks"] = locks
	}
	for name, value := range h.body {
		body[name] = value
	}
	return path, body
}

func (h *handle) lock(ctx context.Context, wait time.Duration) error {
	if h.Check() == nil {
		return errors.New("lockgate: this value already holds the lock; use one value for each goroutine")
	}
	got, err := h.acquire(ctx, wait)
	if err != nil {
		return err
	}
	h.mu.Lock()
	h.held, h.last = got, got
	h.mu.Unlock()
	return nil
}

// acquire acquires in the session that is open. If that is lost before the grant, it starts anew in the next one: nothing was held in it.
func (h *handle) acquire(ctx context.Context, wait time.Duration) (*grants, error) {
	until := time.Now().Add(wait)
	for {
		open, err := h.session.live(ctx)
		if err != nil {
			return nil, err
		}
		if wait > 0 {
			if wait = time.Until(until); wait < time.Millisecond {
				wait = time.Millisecond
			}
		}
		path, body := h.request()
		body["session"] = open.id
		undo := func(ctx context.Context, granted json.RawMessage) error {
			got, err := decodeGrants(granted)
			if err != nil {
				return err
			}
			return open.release(ctx, got)
		}
		answer, err := (&acquire{servers: open.servers, life: open.life, path: path, body: body, wait: wait, undo: undo}).run(ctx)
		open.ended(err)
		if err == nil {
			got, err := decodeGrants(answer)
			if err != nil {
				return nil, err
			}
			h.session.client.count("acquired")
			holds := make([]*hold, len(got))
			for i, each := range got {
				holds[i] = open.enter(each, h.onRequest)
			}
			return newGrants(open, holds), nil
		}
		var lost *Lost
		over := !errors.As(err, &lost) && !endsSession(err) || errors.Is(err, ErrClosed)
		if over || wait != forever && time.Now().After(until.Add(h.session.client.config.Patience)) {
			return nil, err
		}
	}
}

func decodeGrants(answer json.RawMessage) ([]grant, error) {
	var found struct {
		grant
		Holders []grant
	}
	if err := decode(answer, &found); err != nil || found.Holders != nil {
		return found.Holders, err
	}
	return []grant{found.grant}, nil
}

// release releases grants of the cluster.
func (o *openSession) release(ctx context.Context, released []grant) error {
	body, path := fields{"session": o.id, "request_id": requestID()}, "/v1/multilock/release"
	if len(released) == 1 {
		path = "/v1/locks/" + segment(released[0].Lock) + "/release"
		body["holder"] = released[0].Holder
	} else {
		holders := []fields{}
		for _, each := range released {
			holders = append(holders, fields{"lock": each.Lock, "holder": each.Holder})
		}
		body["holders"] = holders
	}
	answer, err := o.ask(ctx, post(path, body))
	if err != nil {
		return err
	}
	var done struct{ Released []struct{ Holds *int } }
	if err := decode(answer, &done); err != nil {
		return err
	}
	for _, each := range done.Released {
		if each.Holds == nil {
			return &Refused{Code: "not_holder", Detail: "one of the locks was lost before"}
		}
	}
	return nil
}

// Unlock releases the lock. Released twice, nothing happens. Its error is a *Lost if the lock was lost before; then nothing is sent. If the
// context ends first, the release goes on in the background.
func (h *handle) Unlock(ctx context.Context) error {
	h.mu.Lock()
	held, last := h.held, h.last
	h.held = nil
	h.mu.Unlock()
	if last == nil {
		return ErrNotHeld
	}
	if held == nil {
		return nil
	}
	lost := held.check()
	held.released.Store(true)
	var alive []grant
	var one *hold
	for _, each := range held.holds {
		if each.check() == nil {
			alive = append(alive, grant{Lock: each.lock, Holder: each.holder})
			one = each
		}
		held.open.leave(each)
	}
	held.cancel()
	if one == nil {
		return lost
	}
	done := make(chan error, 1)
	h.session.client.background("a release", func(background context.Context) error {
		err := held.open.release(background, alive)
		if err != nil {
			err = held.open.explain(one, err)
		}
		done <- err
		if ctx.Err() == nil {
			// The caller gets it.
			return nil
		}
		return err
	})
	select {
	case err := <-done:
		if err == nil {
			err = lost
		}
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Do acquires the lock, calls f, and releases. The context of f ends with ctx, and when the lock is lost. An error of f is returned in any case;
// otherwise, or if f has only passed on that its context was cancelled, the *Lost of a lock that was lost.
func (h *handle) Do(ctx context.Context, f func(context.Context) error) (err error) {
	if err := h.lock(ctx, h.wait); err != nil {
		return err
	}
	held := h.grants()
	inside, cancel := context.WithCancel(context.WithValue(ctx, causeKey{}, held))
	go follow(inside, held.ctx, cancel)
	defer func() {
		cancel()
		released := h.Unlock(ctx)
		var lost *Lost
		if err == nil || errors.Is(err, context.Canceled) && ctx.Err() == nil && errors.As(released, &lost) {
			err = released
		}
	}()
	return f(inside)
}

func (h *handle) grants() *grants {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

// current returns the grants, if they are held.
func (h *handle) current() (*grants, error) {
	h.mu.Lock()
	held := h.held
	h.mu.Unlock()
	if held == nil {
		return nil, ErrNotHeld
	}
	return held, held.check()
}

// Check returns nil while the lock is surely held, and a *Lost or ErrNotHeld otherwise. It reads the clock and sends nothing, so call it before
// every step that needs the lock.
func (h *handle) Check() error {
	_, err := h.current()
	return err
}

// Tokens returns the fencing tokens of the latest grant, one for each lock.
func (h *handle) Tokens() []uint64 {
	last := h.grants()
	if last == nil {
		return nil
	}
	tokens := make([]uint64, len(last.holds))
	for i, each := range last.holds {
		tokens[i] = each.facts().Token
	}
	return tokens
}

// Token returns the fencing token of the latest grant, or 0 if there was none. Storage should refuse a write with a smaller one than it has seen.
func (h *handle) Token() uint64 {
	if tokens := h.Tokens(); tokens != nil {
		return tokens[0]
	}
	return 0
}

func (h *hold) facts() Contender {
	h.life.mu.Lock()
	defer h.life.mu.Unlock()
	return Contender{Holder: h.holder, Session: h.life.id, Mode: h.mode, Token: h.token}
}

// Holder returns the holder of the latest grant as the cluster knows it: its id, session, mode and token.
func (h *handle) Holder() Contender {
	if last := h.grants(); last != nil {
		return last.holds[0].facts()
	}
	return Contender{}
}

// Context returns a context that is cancelled when the lock is lost or released. Cause tells why. Without a grant it is already cancelled.
func (h *handle) Context() context.Context {
	if last := h.grants(); last != nil {
		return last.ctx
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// Verify asks the cluster whether the latest grant holds at this moment.
func (h *handle) Verify(ctx context.Context) (bool, error) {
	last := h.grants()
	if last == nil {
		return false, ErrNotHeld
	}
	for _, each := range last.holds {
		held, err := h.session.client.Verify(ctx, each.lock, each.facts().Token)
		if err != nil || !held {
			return false, err
		}
	}
	return true, nil
}

// ReleaseRequested returns the unanswered request of another caller that the lock be released, and whether there is one.
func (h *handle) ReleaseRequested() (ReleaseRequest, bool) {
	held, err := h.current()
	if err != nil {
		return ReleaseRequest{}, false
	}
	for _, each := range held.holds {
		if request := each.asked(); request != (ReleaseRequest{}) {
			return request, true
		}
	}
	return ReleaseRequest{}, false
}

func (h *hold) asked() ReleaseRequest {
	h.life.mu.Lock()
	defer h.life.mu.Unlock()
	return h.request
}

// ReplyRelease answers a release request.
func (h *handle) ReplyRelease(ctx context.Context, answer string) error {
	held, err := h.current()
	if err != nil {
		return err
	}
	for _, each := range held.holds {
		if len(held.holds) > 1 && each.asked() == (ReleaseRequest{}) {
			continue
		}
		body := fields{"session": held.open.id, "holder": each.holder, "answer": answer, "request_id": requestID()}
		if _, err := held.open.ask(ctx, post("/v1/locks/"+segment(each.lock)+"/release-request/reply", body)); err != nil {
			return held.open.explain(each, err)
		}
	}
	return nil
}

// Mutex is a lock of one name. One value belongs to one goroutine at a time, as in etcd's concurrency.
type Mutex struct{ *handle }

// NewMutex returns a mutex of this name, exclusive unless WithMode says otherwise. It sends nothing.
func NewMutex(s *Session, name string, options ...LockOption) *Mutex {
	return &Mutex{newHandle(s, []Want{{Name: name}}, options)}
}

// Lock waits for the lock until the context ends, or for the time of WithWait. After an error nothing is held, and the queue is left.
func (m *Mutex) Lock(ctx context.Context) error { return m.lock(ctx, m.wait) }

// TryLock takes the lock if it is free. Otherwise its error matches ErrLocked.
func (m *Mutex) TryLock(ctx context.Context) error { return m.lock(ctx, 0) }

// Upgrade makes an upgradeable lock exclusive when the readers have released, and waits for that until the context ends. Its token changes.
// After an error it is upgradeable as before.
func (m *Mutex) Upgrade(ctx context.Context) error { return m.upgrade(ctx, forever) }

// TryUpgrade upgrades if there are no readers. Otherwise its error matches ErrLocked.
func (m *Mutex) TryUpgrade(ctx context.Context) error { return m.upgrade(ctx, 0) }

func (m *Mutex) upgrade(ctx context.Context, wait time.Duration) error {
	held, err := m.current()
	if err != nil {
		return err
	}
	o, h := held.open, held.holds[0]
	body := fields{"session": o.id, "holder": h.holder}
	undo := func(ctx context.Context, _ json.RawMessage) error { return o.downgrade(ctx, h, Upgradeable) }
	path := "/v1/locks/" + segment(h.lock) + "/upgrade"
	granted, err := (&acquire{servers: o.servers, life: o.life, path: path, body: body, wait: wait, undo: undo}).run(ctx)
	if err != nil {
		return o.explain(h, err)
	}
	return h.change(granted)
}

// Downgrade makes the lock shared or upgradeable, without a gap.
func (m *Mutex) Downgrade(ctx context.Context, mode Mode) error {
	held, err := m.current()
	if err != nil {
		return err
	}
	return held.open.downgrade(ctx, held.holds[0], mode)
}

func (o *openSession) downgrade(ctx context.Context, h *hold, mode Mode) error {
	body := fields{"session": o.id, "holder": h.holder, "mode": mode, "request_id": requestID()}
	answer, err := o.ask(ctx, post("/v1/locks/"+segment(h.lock)+"/downgrade", body))
	if err != nil {
		return o.explain(h, err)
	}
	return h.change(answer)
}

// change notes mode and token after an upgrade or downgrade.
func (h *hold) change(answer json.RawMessage) error {
	var changed grant
	if err := decode(answer, &changed); err != nil {
		return err
	}
	h.life.mu.Lock()
	h.mode, h.token = changed.Mode, changed.Token
	h.life.mu.Unlock()
	return nil
}

// RWMutex is a lock that many readers or one writer hold. One value belongs to one goroutine at a time.
type RWMutex struct{ writer, reader Mutex }

// NewRWMutex returns a lock of this name. It sends nothing.
func NewRWMutex(s *Session, name string, options ...LockOption) *RWMutex {
	return &RWMutex{
		writer: Mutex{newHandle(s, []Want{{Name: name, Mode: Exclusive}}, options)},
		reader: Mutex{newHandle(s, []Want{{Name: name, Mode: Shared}}, options)},
	}
}

// Lock waits for the lock as its only holder.
func (m *RWMutex) Lock(ctx context.Context) error { return m.writer.Lock(ctx) }

// TryLock takes the lock as its only holder if it is free.
func (m *RWMutex) TryLock(ctx context.Context) error { return m.writer.TryLock(ctx) }

// Unlock releases the lock of Lock.
func (m *RWMutex) Unlock(ctx context.Context) error { return m.writer.Unlock(ctx) }

// RLock waits for the lock beside other readers.
func (m *RWMutex) RLock(ctx context.Context) error { return m.reader.Lock(ctx) }

// TryRLock takes the lock beside other readers if no writer has it or waits for it.
func (m *RWMutex) TryRLock(ctx context.Context) error { return m.reader.TryLock(ctx) }

// RUnlock releases the lock of RLock.
func (m *RWMutex) RUnlock(ctx context.Context) error { return m.reader.Unlock(ctx) }

// Writer returns the lock of Lock, with its token and context.
func (m *RWMutex) Writer() *Mutex { return &m.writer }

// Reader returns the lock of RLock, with its token and context.
func (m *RWMutex) Reader() *Mutex { return &m.reader }

// Semaphore is a lock that several hold, up to a limit of permits.
type Semaphore struct{ *handle }

// NewSemaphore returns a semaphore of this name, of which this value takes some permits. With limit 0 it is the one that is set. It sends nothing.
func NewSemaphore(s *Session, name string, limit, permits int, options ...LockOption) *Semaphore {
	return &Semaphore{newHandle(s, []Want{{Name: name, Mode: semaphore, Limit: limit, Permits: permits}}, options)}
}

// Acquire waits for the permits until the context ends, or for the time of WithWait.
func (m *Semaphore) Acquire(ctx context.Context) error { return m.lock(ctx, m.wait) }

// TryAcquire takes the permits if they are free. Otherwise its error matches ErrLocked.
func (m *Semaphore) TryAcquire(ctx context.Context) error { return m.lock(ctx, 0) }

// Release releases the permits, as Unlock does.
func (m *Semaphore) Release(ctx context.Context) error { return m.Unlock(ctx) }

// MultiMutex is several locks, all or none. Callers that want some of the same cannot deadlock.
type MultiMutex struct{ *handle }

// NewMultiMutex returns several locks. It sends nothing.
func NewMultiMutex(s *Session, wants []Want, options ...LockOption) *MultiMutex {
	return &MultiMutex{newHandle(s, append([]Want(nil), wants...), options)}
}

// Lock waits for all locks until the context ends, or for the time of WithWait.
func (m *MultiMutex) Lock(ctx context.Context) error { return m.lock(ctx, m.wait) }

// TryLock takes the locks if all are free. Otherwise its error matches ErrLocked.
func (m *MultiMutex) TryLock(ctx context.Context) error { return m.lock(ctx, 0) }

type locker struct {
	ctx   context.Context
	mutex *Mutex
}

// Locker returns the mutex as a sync.Locker, which panics on every error, as that of etcd does.
func (m *Mutex) Locker(ctx context.Context) sync.Locker { return &locker{ctx, m} }

// NewLocker returns a new mutex as a sync.Locker.
func NewLocker(s *Session, name string) sync.Locker {
	return NewMutex(s, name).Locker(context.Background())
}

func (l *locker) Lock() {
	if err := l.mutex.Lock(l.ctx); err != nil {
		panic(err)
	}
}

func (l *locker) Unlock() {
	if err := l.mutex.Unlock(l.ctx); err != nil {
		panic(err)
	}
}
