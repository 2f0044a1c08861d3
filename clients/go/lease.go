package lockgate

import (
	"context"
	"encoding/json"
	"time"
)

// Lease is a lock with a time to live of its own, without a session. Any process that knows its text can renew and release it.
type Lease struct {
	client *Client
	// Text is all that another process needs, and a secret.
	Text string
	// Token is the fencing token, once it is known. It is 0 while the lease waits in the queue.
	Token uint64
	// ExpiresIn is what was left at the latest answer.
	ExpiresIn time.Duration
}

// LeaseState is what the cluster knows of a lease.
type LeaseState struct {
	Lock, Note string
	// Holder is the contender in Inspect's LockState.
	Holder string
	Mode   Mode
	// Token is 0 while the lease waits in the queue.
	Token uint64 `json:"fencing_token"`
	// TTLMS is the time to live that each renewal gives, in milliseconds.
	TTLMS int64 `json:"ttl_ms"`
	// ExpiresInMS is the time that is left, in milliseconds. It is nil if the answering server does not lead.
	ExpiresInMS *int64 `json:"expires_in_ms"`
}

type leased struct {
	Lease     string
	Token     uint64 `json:"fencing_token"`
	ExpiresIn int64  `json:"expires_in_ms"`
}

// AcquireLease acquires a lock for a time. Nothing renews it but Renew. It waits as a Mutex does; with WithWait(0) it only tries. The options for
// owners, polls and release requests do not apply.
func (c *Client) AcquireLease(ctx context.Context, lock string, ttl time.Duration, options ...LockOption) (*Lease, error) {
	h := newHandle(nil, []Want{{Name: lock}}, options)
	delete(h.body, "wait")
	return c.acquireLease(ctx, h, ttl)
}

// QueueLease acquires a lock as AcquireLease does, but returns at once: if the lock is not free, with a place in the queue, for which Wait waits.
func (c *Client) QueueLease(ctx context.Context, lock string, ttl time.Duration, options ...LockOption) (*Lease, error) {
	return c.acquireLease(ctx, newHandle(nil, []Want{{Name: lock}}, append(options, WithPoll(), WithWait(0))), ttl)
}

func (c *Client) acquireLease(ctx context.Context, h *handle, ttl time.Duration) (*Lease, error) {
	path, body := h.request()
	delete(body, "reentrant")
	body["ttl_ms"] = milliseconds(ttl)
	undo := func(ctx context.Context, granted json.RawMessage) error {
		var late leased
		if err := decode(granted, &late); err != nil {
			return err
		}
		return c.ResumeLease(late.Lease).Release(ctx)
	}
	answer, err := (&acquire{servers: c.servers, path: path, body: body, wait: h.wait, undo: undo}).run(ctx)
	if err != nil {
		return nil, err
	}
	var got leased
	if err := decode(answer, &got); err != nil {
		return nil, err
	}
	return &Lease{c, got.Lease, got.Token, time.Duration(got.ExpiresIn) * time.Millisecond}, nil
}

// ResumeLease returns the lease whose text another process has written down. It sends nothing.
func (c *Client) ResumeLease(text string) *Lease { return &Lease{client: c, Text: text} }

func (l *Lease) path() string { return "/v1/leases/" + segment(l.Text) }

// Renew renews the lease for this time, or with 0 for the time of before.
func (l *Lease) Renew(ctx context.Context, ttl time.Duration) error {
	_, err := l.renewed(ctx, ttl)
	return err
}

func (l *Lease) renewed(ctx context.Context, ttl time.Duration) (LeaseState, error) {
	state, err := askFor[LeaseState](ctx, l.client.servers, l.renewal(ttl), l.client.config.Patience)
	if err == nil {
		l.note(state)
	}
	return state, err
}

func (l *Lease) renewal(ttl time.Duration) call {
	body := fields{"request_id": requestID()}
	if ttl > 0 {
		body["ttl_ms"] = milliseconds(ttl)
	}
	return post(l.path()+"/renew", body)
}

// note takes the answer to a renewal.
func (l *Lease) note(state LeaseState) {
	l.Token, l.ExpiresIn = state.Token, 0
	if state.ExpiresInMS != nil {
		l.ExpiresIn = time.Duration(*state.ExpiresInMS) * time.Millisecond
	}
}

// Wait waits in the queue until the lease has its lock, and renews it meanwhile. If the context ends first, the place in the queue stays until
// the lease is released or ends.
func (l *Lease) Wait(ctx context.Context) error {
	for {
		sent := time.Now()
		state, err := l.renewed(ctx, 0)
		renewAt := sent.Add(time.Duration(state.TTLMS) * time.Millisecond / 3)
		path := "/v1/locks/" + segment(state.Lock) + "/holders/" + segment(state.Holder) + "?wait_ms"
		for err == nil && l.Token == 0 && time.Now().Before(renewAt) {
			var answer json.RawMessage
			var granted grant
			if answer, err = l.client.servers.poll(ctx, path, time.Until(renewAt)); err == nil {
				err = decode(answer, &granted)
			}
			if granted.Token != 0 || Code(err) == "holder_gone" {
				// A lease ends with its place, as the renewal says.
				renewAt, err = sent, nil
			}
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil || l.Token != 0:
			return err
		}
	}
}

// Release releases the lock. It may be repeated.
func (l *Lease) Release(ctx context.Context) error {
	_, err := l.client.servers.ask(ctx, call{"DELETE", l.path(), nil}, l.client.config.Patience)
	return err
}

// Inspect returns what the cluster knows of the lease.
func (l *Lease) Inspect(ctx context.Context) (LeaseState, error) {
	return askFor[LeaseState](ctx, l.client.servers, get(l.path()), l.client.config.Patience)
}
