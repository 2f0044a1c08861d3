package lockgate

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// handOverTTL is the time to live of the record of a hand-over, if the named candidate never leads.
	handOverTTL = 30 * time.Second
	// observePoll is the length of one wait for a change of the leader.
	observePoll = time.Second
	// missingPause is the pause before the next look at an election that has no znode yet.
	missingPause = 250 * time.Millisecond
)

// Election is an election among the candidates that name the same lock: its holder leads. One value is one candidate.
type Election struct {
	*handle
	name string
}

// NewElection returns an election of this name. It sends nothing.
func NewElection(s *Session, name string, options ...LockOption) *Election {
	return &Election{newHandle(s, []Want{{Name: name}}, options), name}
}

// Leader is the present leader of an election.
type Leader struct {
	// Candidate is the text of Campaign.
	Candidate string
	// Term is the fencing token of the leader. It is 0 without a leader.
	Term uint64
}

// Campaign waits until this candidate leads, or the context ends, or the time of WithWait is over.
func (e *Election) Campaign(ctx context.Context, candidate string) error {
	if e.Check() == nil {
		return errors.New("lockgate: this value leads already")
	}
	e.body["note"] = candidate
	until := time.Now().Add(e.wait)
	for wait := e.wait; ; {
		got, err := e.acquire(ctx, wait)
		if err != nil {
			return err
		}
		e.mu.Lock()
		e.held, e.last = got, got
		e.mu.Unlock()
		leads, err := e.leads(ctx, candidate)
		if leads {
			return nil
		}
		// If the context has ended, the release goes on in the background.
		if released := e.Unlock(ctx); err == nil {
			err = released
		}
		if err != nil {
			return err
		}
		if wait > 0 {
			if wait = time.Until(until); wait < time.Millisecond {
				wait = time.Millisecond
			}
		}
	}
}

// record is the znode by which a leader names its successor.
func (e *Election) record() string { return "/elections/" + segment(e.name) }

// leads returns whether the granted lock is this candidate's, or that of another one to whom the leader before has handed over.
func (e *Election) leads(ctx context.Context, candidate string) (bool, error) {
	c := e.session.client
	named, err := c.Get(ctx, e.record())
	if Code(err) == "no_znode" {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if string(named.Data) != candidate {
		waits, err := e.waits(ctx, string(named.Data))
		if waits || err != nil {
			return false, err
		}
	}
	if err := c.Delete(ctx, e.record(), AnyVersion); err != nil && Code(err) != "no_znode" {
		return false, err
	}
	return true, nil
}

func (e *Election) waits(ctx context.Context, candidate string) (bool, error) {
	state, err := e.session.client.Inspect(ctx, e.name)
	for _, each := range state.Queue {
		if each.Note == candidate {
			return true, err
		}
	}
	return false, err
}

// Resign gives the leadership up, as Unlock does.
func (e *Election) Resign(ctx context.Context) error { return e.Unlock(ctx) }

// HandOver resigns in favour of a waiting candidate, which leads next. If none of this name waits, the error matches ErrNoCandidate.
func (e *Election) HandOver(ctx context.Context, to string) error {
	if err := e.Check(); err != nil {
		return err
	}
	waits, err := e.waits(ctx, to)
	if err != nil {
		return err
	}
	if !waits {
		return fmt.Errorf("%w: %q", ErrNoCandidate, to)
	}
	c := e.session.client
	_, err = c.Create(ctx, e.record(), []byte(to), TTL(handOverTTL), Parents())
	if Code(err) == "node_exists" {
		_, err = c.Set(ctx, e.record(), []byte(to), AnyVersion)
	}
	if err != nil {
		return err
	}
	return e.Unlock(ctx)
}

// Leader returns the present leader, or ErrElectionNoLeader.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	state, err := e.session.client.Inspect(ctx, e.name)
	if err != nil {
		return Leader{}, err
	}
	if len(state.Holders) == 0 {
		return Leader{}, ErrElectionNoLeader
	}
	return Leader{state.Holders[0].Note, state.Holders[0].Token}, nil
}

// Observe sends the present leader, and every later one. A Leader with Term 0 means that there is none. The channel is closed when the context
// ends, the client is closed, or the cluster refuses to answer.
func (e *Election) Observe(ctx context.Context) <-chan Leader {
	leaders := make(chan Leader)
	go func() {
		defer close(leaders)
		var before *Leader
		for {
			leader, err := e.next(ctx, before)
			if err != nil {
				if ctx.Err() == nil && !errors.Is(err, ErrClosed) {
					e.session.client.config.Logger.Warn("an election is not observed any more", "election", e.name, "error", err)
				}
				return
			}
			select {
			case leaders <- leader:
				before = &leader
			case <-ctx.Done():
				return
			}
		}
	}()
	return leaders
}

// next waits until the leader is another than before. Changes are watched, and looked for once a second.
func (e *Election) next(ctx context.Context, before *Leader) (Leader, error) {
	c := e.session.client
	watch, err := znodePath("/v1/watch", "/locks/"+e.name)
	if err != nil {
		return Leader{}, err
	}
	watch += "?kind=children&timeout_ms"
	for {
		leader, err := e.Leader(ctx)
		if err == nil || err == ErrElectionNoLeader {
			if before == nil || leader != *before {
				return leader, nil
			}
			_, err = c.servers.poll(ctx, watch, observePoll)
		}
		switch {
		case Code(err) == "no_znode":
			sleep(ctx, missingPause)
		case errors.Is(err, ErrUnavailable) && ctx.Err() == nil:
			// A cluster without a majority: the leader is known when it is back.
			c.config.Logger.Debug("the leader of an election is not known", "election", e.name, "error", err)
		case err != nil:
			return Leader{}, err
		}
	}
}
