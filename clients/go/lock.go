package lockgate

import (
	"context"
	"errors"
	"net/url"
	"sync"
	"time"
)

// acquire takes one lock. Without a deadline of the context it waits for as long as the session lives.
func (s *Session) acquire(ctx context.Context, lock string, body fields, try bool) (*hold, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		l, err := s.live(ctx)
		if err != nil {
			return nil, err
		}
		h, err := l.acquire(ctx, lock, body, try)
		var lost *Lost
		if errors.As(err, &lost) && lost.Reason != "closed" {
			// The loss of a session in which nothing is held yet is nobody's concern.
			continue
		}
		return h, err
	}
}

type attemptEnd struct {
	grant grant
	err   error
}

// acquire sends one request under one id, to one server after the other, until its outcome is known.
func (l *life) acquire(ctx context.Context, lock string, wanted fields, try bool) (*hold, error) {
	path := "/v1/locks/" + url.PathEscape(lock) + "/acquire"
	id, retry, pause, inDoubt := requestID(), 0, firstPause, false
	began := time.Now()
	deadline, bounded := ctx.Deadline()
	// Unanswered attempts keep their connections until the call is over: a server that sees a closed one withdraws the contender.
	attempts, drop := context.WithCancel(context.Background())
	copyOf := func(wait any) fields {
		body := fields{"session": l.id, "request_id": id, "retry": retry, "wait_ms": wait}
		for name, value := range wanted {
			body[name] = value
		}
		retry++
		return body
	}
	giveUp := func(err error) (*hold, error) {
		if !inDoubt || l.check() != nil {
			drop()
			return nil, err
		}
		// The caller does not wait for the withdrawal.
		go func() {
			defer drop()
			l.withdraw(lock, path, copyOf)
		}()
		return nil, err
	}
	patience := l.servers.client.config.Patience
	for {
		if loss := l.check(); loss != nil {
			drop()
			return nil, loss
		}
		var wait any
		var silent <-chan time.Time
		if try {
			wait = 0
			silent = time.After(longestTry)
		} else if bounded {
			left := time.Until(deadline)
			if left < 0 {
				left = 0
			}
			wait = left.Milliseconds()
		}
		l.servers.mu.Lock()
		at := l.servers.list[l.servers.current]
		at.waits++
		suspected := at.suspected
		l.servers.mu.Unlock()
		end := make(chan attemptEnd, 1)
		body := copyOf(wait)
		go func() {
			var g grant
			err := l.servers.send(attempts, at, "POST", path, body, &g)
			l.servers.mu.Lock()
			at.waits--
			l.servers.mu.Unlock()
			end <- attemptEnd{g, err}
		}()
		doubtedBefore := inDoubt
		inDoubt = true
		var err error
		select {
		case answer := <-end:
			switch e := answer.err.(type) {
			case nil:
				drop()
				if loss := l.check(); loss != nil {
					return nil, loss
				}
				return l.enter(lock, answer.grant), nil
			case *Refused:
				drop()
				l.ended(e)
				if loss := l.check(); loss != nil {
					return nil, loss
				}
				if doubtedBefore && e.concernsCaller() {
					return nil, &OutcomeUnknown{e.Detail}
				}
				return nil, e
			case *notExecuted:
				inDoubt = doubtedBefore
			}
			err = answer.err
		case <-ctx.Done():
			return giveUp(ctx.Err())
		case <-l.done:
			drop()
			return nil, l.check()
		case <-suspected:
			err = &uncertain{at.address + ": the server is silent"}
		case <-silent:
			err = &uncertain{at.address + ": no answer in time"}
		}
		l.servers.turnAway(at)
		if try && time.Since(began) > patience {
			return giveUp(inDoubtError(inDoubt, err.Error()))
		}
		if !sleep(ctx, l.servers.pause(&pause)) {
			return giveUp(ctx.Err())
		}
	}
}

// withdraw leaves the queue by the same request without a wait. The answer is the end of the wait, or a grant, which is given back.
func (l *life) withdraw(lock, path string, copyOf func(any) fields) {
	pause := firstPause
	for l.check() == nil {
		at := l.servers.now()
		ctx, cancel := context.WithTimeout(context.Background(), longestTry)
		var g grant
		err := l.servers.send(ctx, at, "POST", path, copyOf(0), &g)
		cancel()
		switch err.(type) {
		case nil:
			if err := l.release(context.Background(), lock, g.Holder); err != nil {
				l.servers.client.config.Logf("lockgate: giving back %s: %v", lock, err)
			}
			return
		case *Refused:
			return
		}
		l.servers.turnAway(at)
		time.Sleep(l.servers.pause(&pause))
	}
}

func (l *life) release(ctx context.Context, lock, holder string) error {
	body := fields{"session": l.id, "holder": holder, "request_id": requestID()}
	err := l.servers.ask(ctx, "POST", "/v1/locks/"+url.PathEscape(lock)+"/release", body, l.servers.client.config.Patience, nil)
	l.ended(err)
	return err
}

// handle is the part that all kinds of locks share.
type handle struct {
	session *Session
	name    string
	body    fields
	mu      sync.Mutex
	hold    *hold
}

func (h *handle) lock(ctx context.Context, try bool) error {
	h.mu.Lock()
	held := h.hold
	h.mu.Unlock()
	if held != nil && held.check() == nil {
		return errors.New("lockgate: this value already holds the lock; use one value for each goroutine")
	}
	got, err := h.session.acquire(ctx, h.name, h.body, try)
	if err != nil {
		return err
	}
	h.mu.Lock()
	h.hold = got
	h.mu.Unlock()
	return nil
}

// Unlock releases the lock. Its error is a *Lost if the lock was lost before, and ErrNotHeld if it is not held.
func (h *handle) Unlock(ctx context.Context) error {
	h.mu.Lock()
	held := h.hold
	h.hold = nil
	h.mu.Unlock()
	if held == nil {
		return ErrNotHeld
	}
	if err := held.check(); err != nil {
		return err
	}
	l := held.life
	// What is released here is not lost: the event of its end finds no hold.
	l.mu.Lock()
	delete(l.holds, held.holder)
	l.mu.Unlock()
	held.cancel()
	err := l.release(ctx, held.lock, held.holder)
	var refused *Refused
	if errors.As(err, &refused) && refused.Code == "not_holder" {
		return &Lost{Reason: "taken_away"}
	}
	return err
}

// Token returns the fencing token of the grant, or 0 if the lock is not held.
func (h *handle) Token() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hold == nil {
		return 0
	}
	return h.hold.token
}

// Context returns a context that is cancelled when the lock is lost or released. Cause tells why. Without a lock it is already cancelled.
func (h *handle) Context() context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hold == nil {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		return ctx
	}
	return h.hold.ctx
}

// Check returns nil while the lock is held by the clock. It sends nothing.
func (h *handle) Check() error {
	h.mu.Lock()
	held := h.hold
	h.mu.Unlock()
	if held == nil {
		return ErrNotHeld
	}
	return held.check()
}

// Verify asks the cluster whether the lock is still held.
func (h *handle) Verify(ctx context.Context) (bool, error) {
	token := h.Token()
	if token == 0 {
		return false, ErrNotHeld
	}
	return h.session.client.Verify(ctx, h.name, token)
}

// Mutex is an exclusive lock. One value belongs to one goroutine at a time, as in etcd's concurrency.
type Mutex struct{ handle }

// NewMutex returns a mutex of this name. It sends nothing.
func NewMutex(s *Session, name string) *Mutex {
	return &Mutex{handle{session: s, name: name, body: fields{"mode": "exclusive", "reentrant": false}}}
}

// Lock waits for the lock until the context ends. After an error the session is not in the queue, or is withdrawn from it.
func (m *Mutex) Lock(ctx context.Context) error { return m.lock(ctx, false) }

// TryLock takes the lock if it is free. Otherwise its error matches ErrLocked.
func (m *Mutex) TryLock(ctx context.Context) error { return m.lock(ctx, true) }

// RWMutex is a lock that many readers or one writer hold.
type RWMutex struct{ write, read handle }

// NewRWMutex returns a lock of this name. It sends nothing.
func NewRWMutex(s *Session, name string) *RWMutex {
	return &RWMutex{
		write: handle{session: s, name: name, body: fields{"mode": "exclusive", "reentrant": false}},
		read:  handle{session: s, name: name, body: fields{"mode": "shared", "reentrant": false}},
	}
}

// Lock waits for the lock as its only holder.
func (m *RWMutex) Lock(ctx context.Context) error { return m.write.lock(ctx, false) }

// Unlock releases the lock of Lock.
func (m *RWMutex) Unlock(ctx context.Context) error { return m.write.Unlock(ctx) }

// RLock waits for the lock beside other readers.
func (m *RWMutex) RLock(ctx context.Context) error { return m.read.lock(ctx, false) }

// RUnlock releases the lock of RLock.
func (m *RWMutex) RUnlock(ctx context.Context) error { return m.read.Unlock(ctx) }

// Semaphore is a lock that several hold, up to a limit of permits.
type Semaphore struct{ handle }

// NewSemaphore returns a semaphore of this name, of which this value takes some permits. It sends nothing.
func NewSemaphore(s *Session, name string, limit, permits int) *Semaphore {
	return &Semaphore{handle{session: s, name: name, body: fields{"mode": "semaphore", "limit": limit, "permits": permits}}}
}

// Acquire waits for the permits until the context ends.
func (m *Semaphore) Acquire(ctx context.Context) error { return m.lock(ctx, false) }

// TryAcquire takes the permits if they are free. Otherwise its error matches ErrLocked.
func (m *Semaphore) TryAcquire(ctx context.Context) error { return m.lock(ctx, true) }

// Release gives the permits back.
func (m *Semaphore) Release(ctx context.Context) error { return m.Unlock(ctx) }

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
