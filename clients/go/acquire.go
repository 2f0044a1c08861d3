package lockgate

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"
)

// forever is the wait of a call that waits until it is granted, or its session ends.
const forever time.Duration = -1

// leaseWait is the time that a server gets for a lease without a limit of the wait, before the call continues at the next one.
const leaseWait = 30 * time.Second

// acquire is one call that may wait, from the first attempt to its end: under one request id, at one server after the other. If it ends
// without a lock for its caller, it withdraws from the queue, and releases a late grant.
//
// With "wait": "queue" in the body no connection is open while it waits: the place belongs to the session, and long polls ask for the grant.
// For a lease, the document of the place is returned in place of a grant.
type acquire struct {
	servers *servers
	// life is the session, or nil for a lease.
	life *life
	path string
	body fields
	wait time.Duration
	// undo releases a grant that came too late for the caller.
	undo func(context.Context, json.RawMessage) error

	until   time.Time
	retry   int
	inDoubt bool
	queued  bool
	// place is the contender in the queue.
	place string
	// attempts is the context of all attempts. The connections of those without an answer stay open until the call is over: a server that
	// sees a closed connection withdraws the contender, perhaps before the next attempt has taken its place.
	attempts context.Context
}

// run returns the document of the grant.
func (a *acquire) run(ctx context.Context) (json.RawMessage, error) {
	a.body["request_id"] = requestID()
	a.until = time.Now().Add(a.wait)
	a.bound(ctx)
	a.queued = a.body["wait"] == "queue" && (a.life == nil || a.wait != 0)
	delete(a.body, "wait")
	attempts, drop := context.WithCancel(context.Background())
	a.attempts = attempts
	granted, err := a.repeat(ctx)
	if err != nil && a.inDoubt && (a.life == nil || a.life.check() == nil) {
		// The caller does not wait for the withdrawal.
		a.servers.client.background("withdrawing an acquire", func(ctx context.Context) error {
			defer drop()
			return a.withdraw(ctx)
		})
		return nil, err
	}
	drop()
	return granted, err
}

// bound shortens the wait to the deadline of the context, less the time of the answer, so that the queue is left before the deadline.
func (a *acquire) bound(ctx context.Context) {
	deadline, bounded := ctx.Deadline()
	if !bounded || a.wait == 0 {
		return
	}
	reserve := time.Until(deadline) / 20
	if reserve > 50*time.Millisecond {
		reserve = 50 * time.Millisecond
	}
	if end := deadline.Add(-reserve); a.wait == forever || end.Before(a.until) {
		a.until = end
		a.wait = time.Until(end)
		if a.wait < time.Millisecond {
			a.wait = time.Millisecond
		}
	}
}

func (a *acquire) repeat(ctx context.Context) (json.RawMessage, error) {
	giveUp := a.until.Add(a.servers.client.config.Patience)
	var pauses backoff
	why := "nothing was sent"
	for {
		if ctx.Err() != nil {
			return nil, a.cancelled(ctx, why)
		}
		if a.life != nil {
			if loss := a.life.check(); loss != nil {
				return nil, loss
			}
		}
		if a.servers.client.isClosed() {
			return nil, ErrClosed
		}
		doubtedBefore := a.inDoubt
		granted, err := a.attempt(ctx)
		var failed *failure
		var refused *Refused
		switch {
		case err == nil && a.waits(granted):
			pauses = backoff{}
			continue
		case err == nil:
			a.inDoubt = false
			if a.life != nil {
				// A lost session holds nothing, although the cluster has granted the lock.
				if loss := a.life.check(); loss != nil {
					return nil, loss
				}
			}
			return granted, nil
		case errors.As(err, &failed):
			why = failed.why
			a.servers.client.config.Logger.Debug("an acquire is sent again", "why", why)
		case errors.As(err, &refused):
			// The caller may have had the right when an earlier attempt was executed, and may have lost it since.
			if doubtedBefore && refused.concernsCaller() {
				return nil, undecided(true, refused.Detail, refused)
			}
			a.inDoubt = false
			return nil, err
		default:
			return nil, err
		}
		wait := a.servers.pause(pauses.next())
		if a.wait != forever && time.Until(giveUp) <= wait {
			return nil, undecided(a.inDoubt, why, nil)
		}
		if !sleep(ctx, wait) {
			return nil, a.cancelled(ctx, why)
		}
	}
}

// waits returns whether this answer says that the call waits in the queue, and notes its place.
func (a *acquire) waits(answer json.RawMessage) bool {
	var place grant
	if !a.queued || a.life == nil || json.Unmarshal(answer, &place) != nil || place.Token != 0 {
		return false
	}
	if place.Holder != "" {
		a.place = place.Holder
	}
	// The last request is a try, which leaves the queue.
	a.queued = a.wait == forever || time.Now().Before(a.until)
	return true
}

// cancelled returns the error of a call whose context has ended. A late grant will be released, so the outcome is known.
func (a *acquire) cancelled(ctx context.Context, why string) error {
	if a.inDoubt {
		return ctx.Err()
	}
	return undecided(false, why, ctx.Err())
}

// attempt makes one attempt: until the server answers or is suspected, the session is lost, or the caller gives up.
func (a *acquire) attempt(ctx context.Context) (json.RawMessage, error) {
	s, doubtedBefore := a.servers, a.inDoubt
	a.inDoubt = true
	s.mu.Lock()
	at := s.current
	at.waits++
	suspected := at.suspected
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		at.waits--
		s.mu.Unlock()
	}()
	type end struct {
		granted json.RawMessage
		err     error
	}
	ended := make(chan end, 1)
	next := a.next()
	go func() {
		granted, err := s.send(a.attempts, at, next)
		ended <- end{granted, err}
	}()
	var lost <-chan struct{}
	if a.life != nil {
		lost = a.life.ctx.Done()
	}
	silence, stop := a.silence()
	defer stop()
	var err error
	select {
	case answer := <-ended:
		var refused *Refused
		var failed *failure
		if errors.As(answer.err, &failed) {
			s.turnAway(at)
		}
		if errors.As(answer.err, &refused) || failed != nil && !failed.uncertain {
			a.inDoubt = doubtedBefore
		}
		return answer.granted, answer.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-lost:
		return nil, a.life.check()
	case <-suspected:
		err = &failure{at.address + ": the server is silent", true}
	case <-silence:
		err = &failure{at.address + ": no answer in time", true}
	}
	s.turnAway(at)
	return nil, err
}

// silence returns a channel that fires when another server is to be asked: a bounded call should have an answer by then. Of one without a
// limit, the heartbeats of the session find out whether the server lives; a lease has none.
func (a *acquire) silence() (<-chan time.Time, func() bool) {
	within := leaseWait
	if a.queued {
		within = a.servers.client.answerWithin
	} else if a.wait != forever {
		if within = time.Until(a.until); within < 0 {
			within = 0
		}
		within += a.servers.client.answerWithin
	} else if a.life != nil {
		return nil, func() bool { return true }
	}
	timer := time.NewTimer(within)
	return timer.C, timer.Stop
}

// next returns the next copy of the request, with its number. It waits for the remaining time.
func (a *acquire) next() call {
	left := time.Until(a.until)
	if left < 0 || a.wait == 0 {
		left = 0
	}
	if a.queued && a.place != "" {
		if bound := a.servers.client.longestPoll(); a.wait == forever || left > bound {
			left = bound
		}
		lock := strings.TrimSuffix(a.path, "/acquire")
		return get(lock + "/holders/" + segment(a.place) + "?wait_ms=" + strconv.FormatInt(left.Milliseconds(), 10))
	}
	body := fields{"retry": a.retry}
	switch {
	case a.queued:
		body["wait"] = "queue"
	case a.place != "":
		body["wait_ms"] = 0
	case a.wait == forever:
		body["wait_ms"] = nil
	default:
		body["wait_ms"] = left.Milliseconds()
	}
	a.retry++
	for name, value := range a.body {
		body[name] = value
	}
	return post(a.path, body)
}

// withdraw sends the same request without a wait. The answer is the end of the wait, or a grant, which is released.
func (a *acquire) withdraw(ctx context.Context) error {
	a.wait, a.queued = 0, false
	s := a.servers
	end := time.Now().Add(s.client.config.Patience)
	var pauses backoff
	for a.life == nil || a.life.check() == nil {
		at := s.now()
		attempt, cancel := context.WithTimeout(ctx, s.client.answerWithin)
		granted, err := s.send(attempt, at, a.next())
		cancel()
		var failed *failure
		if !errors.As(err, &failed) {
			if err != nil {
				return nil
			}
			return a.undo(ctx, granted)
		}
		s.turnAway(at)
		if a.life == nil && time.Now().After(end) {
			// A granted lease ends with its TTL.
			return err
		}
		sleep(ctx, s.pause(pauses.next()))
	}
	return nil
}
