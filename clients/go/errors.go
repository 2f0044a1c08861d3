package lockgate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

var (
	// ErrLocked is matched by the error of a call whose lock was not free, at once (lock_busy) or in time (lock_timeout).
	ErrLocked = errors.New("lockgate: the lock is not free")
	// ErrNotHeld is returned by calls that need a lock which this value does not hold.
	ErrNotHeld = errors.New("lockgate: the lock is not held")
	// ErrClosed is matched by the errors of calls after this program has closed the client or the session.
	ErrClosed = errors.New("lockgate: closed")
	// ErrLost is matched by every *Lost.
	ErrLost = errors.New("lockgate: the lock is lost")
	// ErrUnavailable is matched by the error of a request that no server could execute in time. Nothing was done.
	ErrUnavailable = errors.New("lockgate: unavailable")
	// ErrOutcomeUnknown is matched by the error of a request that may have been executed, or may still be.
	ErrOutcomeUnknown = errors.New("lockgate: the outcome is unknown")
	// ErrElectionNoLeader is returned by Leader while there is none.
	ErrElectionNoLeader = errors.New("lockgate: the election has no leader")
	// ErrNoCandidate is matched by the error of HandOver if no candidate of that name waits.
	ErrNoCandidate = errors.New("lockgate: no such candidate waits")
)

// Refused is the error of a request that the cluster decided against. Nothing was done.
type Refused struct {
	// Code is the word of the API that programs switch on.
	Code string
	// Detail is a text for people.
	Detail string
	Status int
	// Problem is the whole document, with the fields that this code adds.
	Problem json.RawMessage
}

func (r *Refused) Error() string { return fmt.Sprintf("lockgate: %s: %s", r.Code, r.Detail) }

// Is matches ErrLocked with lock_busy and lock_timeout, and context.DeadlineExceeded with lock_timeout.
func (r *Refused) Is(target error) bool {
	switch r.Code {
	case "lock_busy":
		return target == ErrLocked
	case "lock_timeout":
		return target == ErrLocked || target == context.DeadlineExceeded
	}
	return false
}

func (r *Refused) concernsCaller() bool { return r.Code == "unauthenticated" || r.Code == "forbidden" }

// Code returns the code of a refusal, or "" for another error.
func Code(err error) string {
	var refused *Refused
	if errors.As(err, &refused) {
		return refused.Code
	}
	return ""
}

// Lost is the error of a lock that is lost, alone or with its session.
type Lost struct {
	// Reason is no_heartbeat (not confirmed in time), expired, closed, broken, deleted, released, taken_away or max_hold.
	Reason string
	// By is the proven identity of the caller that took the lock, if it is known.
	By string
	// Detail is the text that this caller gave.
	Detail string
}

func (l *Lost) Error() string {
	text := ErrLost.Error() + ": " + l.Reason
	if l.By != "" {
		text += " by " + l.By
	}
	if l.Detail != "" {
		text += ": " + l.Detail
	}
	return text
}

// Is matches ErrLost, and ErrClosed if this program has closed the session.
func (l *Lost) Is(target error) bool {
	return target == ErrLost || target == ErrClosed && l.Reason == "closed"
}

// failure is the end of an attempt without a definite answer.
type failure struct {
	why string
	// uncertain means that the request may have been executed.
	uncertain bool
}

func (f *failure) Error() string { return f.why }

// noAnswer is the error of a call whose attempts all ended as failures.
type noAnswer struct {
	kind  error
	why   string
	cause error
}

func (n *noAnswer) Error() string        { return n.kind.Error() + ": " + n.why }
func (n *noAnswer) Is(target error) bool { return target == n.kind }
func (n *noAnswer) Unwrap() error        { return n.cause }

// undecided returns the error of a call that has found no definite answer in time, or before its context ended with this cause.
func undecided(inDoubt bool, why string, cause error) error {
	if inDoubt {
		return &noAnswer{ErrOutcomeUnknown, why, cause}
	}
	return &noAnswer{ErrUnavailable, why, cause}
}

func endsSession(err error) bool {
	var refused *Refused
	if !errors.As(err, &refused) {
		return false
	}
	// A call that waits in the queue learns by this field why its place is gone.
	var problem struct{ Ended string }
	_ = json.Unmarshal(refused.Problem, &problem)
	ended := problem.Ended == "session_expired" || problem.Ended == "session_closed"
	return refused.Code == "session_expired" || refused.Code == "no_session" || ended
}
