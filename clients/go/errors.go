package lockgate

import (
	"context"
	"errors"
	"fmt"
)

// ErrLocked is matched by the error of a try that finds the lock taken.
var ErrLocked = errors.New("lockgate: the lock is held by another session")

// ErrNotHeld is returned by calls that need a lock which this value does not hold.
var ErrNotHeld = errors.New("lockgate: the lock is not held")

// ErrClosed is returned by calls of a closed session.
var ErrClosed = errors.New("lockgate: the session is closed")

// Refused is the error of a request that the cluster decided against. Nothing was done.
type Refused struct {
	// Code is the word of the API that programs switch on.
	Code string
	// Detail is a text for people.
	Detail string
	Status int
}

func (r *Refused) Error() string { return fmt.Sprintf("lockgate: %s: %s", r.Code, r.Detail) }

// Is matches ErrLocked with lock_busy, and context.DeadlineExceeded with lock_timeout.
func (r *Refused) Is(target error) bool {
	return r.Code == "lock_busy" && target == ErrLocked || r.Code == "lock_timeout" && target == context.DeadlineExceeded
}

func (r *Refused) endsSession() bool { return r.Code == "session_expired" || r.Code == "no_session" }

func (r *Refused) concernsCaller() bool { return r.Code == "unauthenticated" || r.Code == "forbidden" }

// Unavailable is the error of a request that no server could execute in time. Nothing was done, and the call may be repeated.
type Unavailable struct{ Why string }

func (u *Unavailable) Error() string { return "lockgate: unavailable: " + u.Why }

// OutcomeUnknown is the error of a request that may have been executed, or may still be. Check before repeating it.
type OutcomeUnknown struct{ Why string }

func (u *OutcomeUnknown) Error() string { return "lockgate: the outcome is unknown: " + u.Why }

// Lost is the error of a lock that is lost, alone or with its session.
type Lost struct {
	// Reason is no_heartbeat, expired, closed, broken, deleted, released, taken_away or max_hold.
	Reason string
	// By is the proven identity of the caller that took the lock, if it is known.
	By string
	// Detail is the text that this caller gave.
	Detail string
}

func (l *Lost) Error() string {
	text := "lockgate: the lock is lost: " + l.Reason
	if l.By != "" {
		text += " by " + l.By
	}
	if l.Detail != "" {
		text += ": " + l.Detail
	}
	return text
}

// notExecuted is the end of an attempt that executed nothing.
type notExecuted struct{ why string }

func (n *notExecuted) Error() string { return n.why }

// uncertain is the end of an attempt that may have executed the request.
type uncertain struct{ why string }

func (u *uncertain) Error() string { return u.why }

func inDoubtError(inDoubt bool, why string) error {
	if inDoubt {
		return &OutcomeUnknown{why}
	}
	return &Unavailable{why}
}
