package lockgate

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"
)

// largestBatch is the largest number of requests in a batch, as servers accept it.
const largestBatch = 128

// attempts is what is known of a request after some attempts.
type attempts struct {
	changes, inDoubt bool
	why              string
}

// take takes the outcome of an attempt, and returns the error of the request. It returns false if the outcome is not definite.
func (a *attempts) take(err error) (error, bool) {
	var failed *failure
	var refused *Refused
	switch {
	case errors.As(err, &failed):
		a.inDoubt, a.why = a.inDoubt || a.changes && failed.uncertain, failed.why
		return nil, false
	case errors.As(err, &refused) && a.inDoubt && refused.concernsCaller():
		// The caller may have had the right when an earlier attempt was executed, and may have lost it since.
		return undecided(true, refused.Detail, refused), true
	}
	return err, true
}

// change is sent together with others. It has an answer or an error when its batch has ended.
type change struct {
	call
	attempts
	sent   int
	answer json.RawMessage
	err    error
}

func newChange(c call) *change { return &change{call: c, attempts: attempts{changes: true}} }

// document returns the request of a batch; that of an acquire has the number of earlier attempts.
func (c *change) document() fields {
	if _, counts := c.body["retry"]; counts {
		c.body["retry"] = c.sent
	}
	c.sent++
	document := fields{"method": c.method, "path": c.path}
	if c.body != nil {
		document["body"] = c.body
	}
	return document
}

// batch sends idempotent changes together until each has a definite answer: after each attempt those without one again, as if they were sent
// alone.
func (s *servers) batch(ctx context.Context, changes []*change) {
	for len(changes) > largestBatch {
		s.batchPart(ctx, changes[:largestBatch])
		changes = changes[largestBatch:]
	}
	if len(changes) > 0 {
		s.batchPart(ctx, changes)
	}
}

func (s *servers) batchPart(ctx context.Context, pending []*change) {
	deadline, within := time.Now().Add(s.client.config.Patience), s.client.answerWithin
	var pauses backoff
	for {
		requests := make([]fields, len(pending))
		for i, each := range pending {
			requests[i] = each.document()
		}
		at := s.now()
		var got struct {
			Results []struct {
				Status        int
				Body, Problem json.RawMessage
			}
		}
		answer, err := s.once(ctx, within, at, post("/v1/batch", fields{"requests": requests}))
		if err == nil {
			if err = json.Unmarshal(answer, &got); err == nil && len(got.Results) != len(pending) {
				err = &failure{at.address + ": an answer to another number of requests", true}
			}
		}
		var left []*change
		for i, each := range pending {
			err := err
			if err == nil {
				result := got.Results[i]
				each.answer, err = s.judge(at, &http.Response{StatusCode: result.Status}, append(result.Body, result.Problem...))
			}
			definite := false
			if each.err, definite = each.take(err); !definite {
				left = append(left, each)
			}
		}
		if pending = left; len(pending) == 0 {
			return
		}
		if within = s.again(ctx, at, &pauses, deadline); within == 0 {
			for _, each := range pending {
				each.err = undecided(each.inDoubt, each.why, ctx.Err())
			}
			return
		}
	}
}

// LeaseResult is the outcome for one of many leases: a lease or an error.
type LeaseResult struct {
	Lease *Lease
	Err   error
}

// AcquireLeases acquires many locks for a time each, by one request for each 128, without waiting. The results are in the order of the locks. If
// the context ends meanwhile, all locks are released.
func (c *Client) AcquireLeases(ctx context.Context, locks []string, ttl time.Duration, options ...LockOption) []LeaseResult {
	changes := make([]*change, len(locks))
	for i, lock := range locks {
		path, body := newHandle(nil, []Want{{Name: lock}}, options).request()
		delete(body, "reentrant")
		delete(body, "wait")
		body["ttl_ms"], body["wait_ms"], body["retry"], body["request_id"] = milliseconds(ttl), 0, 0, requestID()
		changes[i] = newChange(post(path, body))
	}
	c.servers.batch(ctx, changes)
	results := make([]LeaseResult, len(locks))
	for i, each := range changes {
		if results[i].Lease, results[i].Err = c.leaseOf(each); each.err == nil && ctx.Err() != nil {
			results[i] = LeaseResult{nil, ctx.Err()}
		}
	}
	if ctx.Err() != nil {
		c.background("releasing leases", func(ctx context.Context) error { return c.releaseLate(ctx, changes) })
	}
	return results
}

// leaseOf returns the lease in the answer to an acquire.
func (c *Client) leaseOf(acquired *change) (*Lease, error) {
	var got leased
	if acquired.err != nil {
		return nil, acquired.err
	}
	if err := decode(acquired.answer, &got); err != nil {
		return nil, err
	}
	return &Lease{c, got.Lease, got.Token, time.Duration(got.ExpiresIn) * time.Millisecond}, nil
}

// releaseLate releases what was acquired, or may have been.
func (c *Client) releaseLate(ctx context.Context, changes []*change) error {
	var unknown []*change
	for _, each := range changes {
		if errors.Is(each.err, ErrOutcomeUnknown) {
			unknown = append(unknown, each)
		}
	}
	c.servers.batch(ctx, unknown)
	var leases []*Lease
	for _, each := range changes {
		if lease, err := c.leaseOf(each); err == nil {
			leases = append(leases, lease)
		}
	}
	for _, err := range c.ReleaseLeases(ctx, leases) {
		if err != nil {
			return err
		}
	}
	return nil
}

// RenewLeases renews many leases for this time, or with 0 each for the time of before, by one request for each 128. It returns nil or an error for
// each.
func (c *Client) RenewLeases(ctx context.Context, leases []*Lease, ttl time.Duration) []error {
	changes := make([]*change, len(leases))
	for i, lease := range leases {
		changes[i] = newChange(lease.renewal(ttl))
	}
	c.servers.batch(ctx, changes)
	errs := make([]error, len(leases))
	for i, each := range changes {
		var state LeaseState
		if errs[i] = each.err; each.err == nil {
			errs[i] = decode(each.answer, &state)
		}
		if errs[i] == nil {
			leases[i].note(state)
		}
	}
	return errs
}

// ReleaseLeases releases many leases, by one request for each 128. It may be repeated. It returns nil or an error for each.
func (c *Client) ReleaseLeases(ctx context.Context, leases []*Lease) []error {
	changes := make([]*change, len(leases))
	for i, lease := range leases {
		changes[i] = newChange(call{"DELETE", lease.path(), nil})
	}
	c.servers.batch(ctx, changes)
	errs := make([]error, len(leases))
	for i, each := range changes {
		errs[i] = each.err
	}
	return errs
}
