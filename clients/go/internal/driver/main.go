// Command driver is the driver of the conformance suite. clients/conformance/PROTOCOL.md has the protocol.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"lockgate"
	"lockgate/lockgatetest"
)

type object = map[string]any

// locked is a lock of any kind.
type locked interface {
	lockgate.Guard
	Unlock(context.Context) error
	Check() error
	Verify(context.Context) (bool, error)
	Context() context.Context
	Tokens() []uint64
	Holder() lockgate.Contender
	Do(context.Context, func(context.Context) error) error
	ReplyRelease(context.Context, string) error
}

// granted is a lock that has a name.
type granted struct {
	locked
	client *lockgate.Client
}

// opened is a client with its session.
type opened struct {
	client  *lockgate.Client
	session *lockgate.Session
	fake    *lockgatetest.Cluster
}

type driver struct {
	out  sync.Mutex
	mu   sync.Mutex
	logs []string

	clients map[string]*opened
	grants  map[string]granted
	ends    map[string]chan string
	running map[int]context.CancelFunc
}

func (d *driver) say(line object) {
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	d.out.Lock()
	defer d.out.Unlock()
	os.Stdout.Write(append(text, '\n'))
}

// Debug and Warn make the driver a Logger.

func (d *driver) Debug(msg string, args ...any) { d.log("DEBUG", msg, args) }

func (d *driver) Warn(msg string, args ...any) { d.log("WARN", msg, args) }

func (d *driver) log(level, msg string, args []any) {
	line := level + " " + msg
	for i := 0; i+1 < len(args); i += 2 {
		line += fmt.Sprintf(" %v=%v", args[i], args[i+1])
	}
	fmt.Fprintln(os.Stderr, line)
	d.mu.Lock()
	d.logs = append(d.logs, line)
	d.mu.Unlock()
}

func errorOf(err error) object {
	reply := object{"kind": "usage", "message": err.Error()}
	var lost *lockgate.Lost
	switch {
	case errors.As(err, &lost):
		reply["kind"], reply["reason"], reply["by"], reply["detail"] = "lost", lost.Reason, lost.By, lost.Detail
	case lockgate.Code(err) != "":
		reply["kind"], reply["code"] = "refused", lockgate.Code(err)
	case errors.Is(err, context.Canceled):
		reply["kind"] = "cancelled"
	case errors.Is(err, lockgate.ErrUnavailable):
		reply["kind"] = "unavailable"
	case errors.Is(err, lockgate.ErrOutcomeUnknown):
		reply["kind"] = "unknown"
	}
	return reply
}

// command is the union of the fields of all commands. Unknown fields are errors.
type command struct {
	ID          int
	Do          string
	Client, As  string
	Servers     []string
	TTLMS       int64   `json:"ttl_ms"`
	PatienceMS  int64   `json:"patience_ms"`
	AtLeader    bool    `json:"at_leader"`
	CAFile      string  `json:"ca_file"`
	CertFile    string  `json:"cert_file"`
	KeyFile     string  `json:"key_file"`
	TokenFile   string  `json:"token_file"`
	Token       *string `json:"token"`
	WaitMS      *int64  `json:"wait_ms"`
	MaxHoldMS   int64   `json:"max_hold_ms"`
	MinHoldMS   int64   `json:"min_hold_ms"`
	EveryMS     int64   `json:"every_ms"`
	TimeoutMS   int64   `json:"timeout_ms"`
	Workers     int
	Seconds     float64
	Traceparent string
	Fake        bool
	Name        string
	Lock        string
	Locks       []want
	Mode        string
	Limit       int
	Permits     int
	Owner       *string
	Note        string
	Command     int
	Hold        bool
	Raise       *string
	Answer      string
	Lease       string
	Leases      []string
	Election    string
	Candidate   string
	To          string
	Path        string
	Data        string
	Version     *int
	Parents     bool
	Kind        string
	Reason      string
	Poll        bool
	Queue       bool
}

type want struct {
	Lock, Mode     string
	Limit, Permits int
}

func (w want) wanted() lockgate.Want {
	if w.Mode != "semaphore" {
		return lockgate.Want{Name: w.Lock, Mode: lockgate.Mode(w.Mode)}
	}
	if w.Permits == 0 {
		w.Permits = 1
	}
	return lockgate.Want{Name: w.Lock, Limit: w.Limit, Permits: w.Permits}
}

func duration(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// client returns a client, and what the options of a command say.
func (d *driver) client(c *command) (*opened, []lockgate.LockOption) {
	d.mu.Lock()
	at := d.clients[c.Client]
	d.mu.Unlock()
	options := []lockgate.LockOption{lockgate.OnReleaseRequest(func(asked lockgate.ReleaseRequest) {
		d.say(object{"event": "release_requested", "as": c.As, "by": asked.By, "reason": asked.Reason})
	})}
	if c.WaitMS != nil {
		options = append(options, lockgate.WithWait(duration(*c.WaitMS)))
	}
	if c.Owner != nil {
		options = append(options, lockgate.WithOwner(*c.Owner))
	}
	if c.Note != "" {
		options = append(options, lockgate.WithNote(c.Note))
	}
	if c.MinHoldMS > 0 {
		options = append(options, lockgate.WithMinHold(duration(c.MinHoldMS)))
	}
	if c.MaxHoldMS > 0 {
		options = append(options, lockgate.WithMaxHold(duration(c.MaxHoldMS)))
	}
	if c.Poll {
		options = append(options, lockgate.WithPoll())
	}
	return at, options
}

func (d *driver) grant(c *command) granted {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.grants[c.As]
}

// note names a grant, and reports its loss.
func (d *driver) note(as string, at *opened, lock locked) object {
	d.mu.Lock()
	d.grants[as] = granted{lock, at.client}
	d.mu.Unlock()
	ctx := lock.Context()
	go func() {
		<-ctx.Done()
		var lost *lockgate.Lost
		if errors.As(lockgate.Cause(ctx), &lost) {
			d.say(object{"event": "lost", "as": as, "reason": lost.Reason, "by": lost.By, "detail": lost.Detail})
		}
	}()
	holder := lock.Holder()
	return object{"fencing_token": holder.Token, "holder": holder.Holder, "mode": holder.Mode}
}

func (d *driver) execute(ctx context.Context, c *command) (any, error) {
	switch c.Do {
	case "open":
		return d.open(c)
	case "session":
		at, _ := d.client(c)
		id, ttl := at.session.ID()
		if id == "" {
			return object{"session": nil}, nil
		}
		return object{"session": id, "ttl_ms": ttl.Milliseconds()}, nil
	case "close":
		at, _ := d.client(c)
		return nil, at.client.Close()
	case "metrics":
		at, _ := d.client(c)
		return at.client.Metrics(), nil
	case "logs":
		d.mu.Lock()
		defer d.mu.Unlock()
		return object{"lines": append([]string{}, d.logs...)}, nil
	case "cycle":
		return d.cycle(ctx, c)
	case "acquire", "acquire_many", "block":
		return d.acquire(ctx, c)
	case "cancel":
		d.mu.Lock()
		cancel := d.running[c.Command]
		d.mu.Unlock()
		if cancel != nil {
			cancel()
		}
		return nil, nil
	case "end_block":
		text := ""
		if c.Raise != nil {
			text = *c.Raise
		}
		d.mu.Lock()
		end := d.ends[c.As]
		d.mu.Unlock()
		end <- text
		return nil, nil
	case "release", "resign":
		return nil, d.grant(c).Unlock(ctx)
	case "check":
		return object{"valid": d.grant(c).Check() == nil}, nil
	case "verify":
		held, err := d.grant(c).Verify(ctx)
		return object{"held": held}, err
	case "upgrade", "downgrade":
		return d.change(ctx, c)
	case "work":
		go d.work(c, d.grant(c))
		return nil, nil
	case "reply_release":
		return nil, d.grant(c).ReplyRelease(ctx, c.Answer)
	case "lease_acquire", "lease_wait", "lease_renew", "lease_release", "lease_get":
		return d.lease(ctx, c)
	case "leases_acquire", "leases_renew", "leases_release":
		return d.leases(ctx, c), nil
	case "campaign", "leader", "observe", "hand_over":
		return d.election(ctx, c)
	case "create", "get", "set", "delete", "children", "watch", "guarded_set":
		return d.znode(ctx, c)
	case "fake_break":
		at, _ := d.client(c)
		at.fake.Break(c.Lock, c.Reason)
		return nil, nil
	case "fake_expire":
		at, _ := d.client(c)
		at.fake.ExpireSessions()
		return nil, nil
	}
	return nil, errors.New("unknown command " + c.Do)
}

func (d *driver) open(c *command) (any, error) {
	at := &opened{}
	config := lockgate.Config{
		Endpoints: c.Servers, Patience: duration(c.PatienceMS), AtLeader: c.AtLeader,
		CAFile: c.CAFile, CertFile: c.CertFile, KeyFile: c.KeyFile, Logger: d,
	}
	if c.Token != nil {
		config.Token = lockgate.StaticToken(*c.Token)
	}
	if c.TokenFile != "" {
		config.Token = func(context.Context) (string, error) {
			text, err := os.ReadFile(c.TokenFile)
			return strings.TrimSpace(string(text)), err
		}
	}
	if c.Traceparent != "" {
		config.Traceparent = func(context.Context) string { return c.Traceparent }
	}
	if c.Fake {
		at.fake = lockgatetest.NewCluster()
		config.Endpoints = []string{at.fake.Endpoint()}
	}
	var err error
	if at.client, err = lockgate.New(config); err != nil {
		return nil, err
	}
	at.session, err = lockgate.NewSession(at.client, lockgate.WithTTL(int(c.TTLMS/1000)), lockgate.WithName(c.Name))
	d.mu.Lock()
	d.clients[c.Client] = at
	d.mu.Unlock()
	return nil, err
}

func (d *driver) acquire(ctx context.Context, c *command) (any, error) {
	at, options := d.client(c)
	if c.Do == "acquire_many" {
		wants := []lockgate.Want{}
		for _, each := range c.Locks {
			wants = append(wants, each.wanted())
		}
		locks := lockgate.NewMultiMutex(at.session, wants, options...)
		if err := locks.Lock(ctx); err != nil {
			return nil, err
		}
		d.note(c.As, at, locks)
		return object{"fencing_tokens": locks.Tokens()}, nil
	}
	if c.Mode == "semaphore" {
		wanted := want{c.Lock, c.Mode, c.Limit, c.Permits}.wanted()
		lock := lockgate.NewSemaphore(at.session, c.Lock, wanted.Limit, wanted.Permits, options...)
		if err := lock.Acquire(ctx); err != nil {
			return nil, err
		}
		return d.note(c.As, at, lock), nil
	}
	if c.Mode != "" {
		options = append(options, lockgate.WithMode(lockgate.Mode(c.Mode)))
	}
	lock := lockgate.NewMutex(at.session, c.Lock, options...)
	if c.Do == "acquire" {
		if err := lock.Lock(ctx); err != nil {
			return nil, err
		}
		return d.note(c.As, at, lock), nil
	}
	end := make(chan string, 1)
	d.mu.Lock()
	d.ends[c.As] = end
	d.mu.Unlock()
	return nil, lock.Do(ctx, func(ctx context.Context) error {
		d.note(c.As, at, lock)
		d.say(object{"event": "entered", "as": c.As, "fencing_token": lock.Token()})
		raise := ""
		select {
		case raise = <-end:
		case <-ctx.Done():
			reason := any(nil)
			var lost *lockgate.Lost
			if errors.As(lockgate.Cause(ctx), &lost) {
				reason = lost.Reason
			}
			d.say(object{"event": "interrupted", "as": c.As, "reason": reason})
			if !c.Hold {
				return ctx.Err()
			}
			raise = <-end
		}
		if raise != "" {
			return errors.New(raise)
		}
		return nil
	})
}

func (d *driver) change(ctx context.Context, c *command) (any, error) {
	lock := d.grant(c).locked.(*lockgate.Mutex)
	var err error
	switch {
	case c.Do == "downgrade":
		err = lock.Downgrade(ctx, lockgate.Mode(c.Mode))
	case c.WaitMS != nil && *c.WaitMS == 0:
		err = lock.TryUpgrade(ctx)
	default:
		if c.WaitMS != nil {
			bounded, cancel := context.WithTimeout(ctx, duration(*c.WaitMS))
			defer cancel()
			ctx = bounded
		}
		err = lock.Upgrade(ctx)
	}
	holder := lock.Holder()
	return object{"fencing_token": holder.Token, "mode": holder.Mode}, err
}

// monotonic returns seconds of CLOCK_MONOTONIC.
func monotonic() float64 {
	const clock = 1
	var at syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&at)), 0); errno != 0 {
		panic(errno)
	}
	return float64(at.Nano()) / 1e9
}

func (d *driver) work(c *command, lock locked) {
	for {
		checkedAt := monotonic()
		if err := lock.Check(); err != nil {
			reason := "released"
			var lost *lockgate.Lost
			if errors.As(err, &lost) {
				reason = lost.Reason
			}
			d.say(object{"event": "stopped", "as": c.As, "reason": reason})
			return
		}
		d.say(object{"event": "worked", "as": c.As, "checked_at": checkedAt})
		time.Sleep(duration(c.EveryMS))
	}
}

func (d *driver) lease(ctx context.Context, c *command) (any, error) {
	at, options := d.client(c)
	if c.Do == "lease_acquire" {
		acquire := at.client.AcquireLease
		if c.Queue {
			acquire = at.client.QueueLease
		}
		lease, err := acquire(ctx, c.Lock, duration(c.TTLMS), options...)
		if err != nil {
			return nil, err
		}
		return object{"lease": lease.Text, "fencing_token": orNull(lease.Token), "expires_in_ms": lease.ExpiresIn.Milliseconds()}, nil
	}
	lease := at.client.ResumeLease(c.Lease)
	switch c.Do {
	case "lease_wait":
		if c.WaitMS != nil {
			bounded, cancel := context.WithTimeout(ctx, duration(*c.WaitMS))
			defer cancel()
			ctx = bounded
		}
		err := lease.Wait(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			err = nil
		}
		return object{"fencing_token": orNull(lease.Token)}, err
	case "lease_renew":
		err := lease.Renew(ctx, duration(c.TTLMS))
		return object{"expires_in_ms": lease.ExpiresIn.Milliseconds(), "fencing_token": lease.Token}, err
	case "lease_release":
		return nil, lease.Release(ctx)
	}
	state, err := lease.Inspect(ctx)
	return object{"lock": state.Lock, "fencing_token": state.Token, "expires_in_ms": state.ExpiresInMS, "note": state.Note}, err
}

func (d *driver) leases(ctx context.Context, c *command) any {
	at, _ := d.client(c)
	answers := []any{}
	if c.Do == "leases_acquire" {
		locks := make([]string, len(c.Locks))
		for i, each := range c.Locks {
			locks[i] = each.Lock
		}
		for _, each := range at.client.AcquireLeases(ctx, locks, duration(c.TTLMS)) {
			if each.Err != nil {
				answers = append(answers, object{"error": errorOf(each.Err)})
			} else {
				answers = append(answers, object{"lease": each.Lease.Text, "fencing_token": each.Lease.Token})
			}
		}
		return object{"leases": answers}
	}
	leases := make([]*lockgate.Lease, len(c.Leases))
	for i, text := range c.Leases {
		leases[i] = at.client.ResumeLease(text)
	}
	var errs []error
	if c.Do == "leases_renew" {
		errs = at.client.RenewLeases(ctx, leases, duration(c.TTLMS))
	} else {
		errs = at.client.ReleaseLeases(ctx, leases)
	}
	for i, err := range errs {
		if err != nil {
			answers = append(answers, object{"error": errorOf(err)})
		} else {
			answers = append(answers, object{"fencing_token": leases[i].Token})
		}
	}
	return object{"leases": answers}
}

// orNull returns the token, or nil if there is none.
func orNull(token uint64) any {
	if token == 0 {
		return nil
	}
	return token
}

func (d *driver) election(ctx context.Context, c *command) (any, error) {
	if c.Do == "hand_over" {
		return nil, d.grant(c).locked.(*lockgate.Election).HandOver(ctx, c.To)
	}
	at, options := d.client(c)
	election := lockgate.NewElection(at.session, c.Election, options...)
	switch c.Do {
	case "campaign":
		if err := election.Campaign(ctx, c.Candidate); err != nil {
			return nil, err
		}
		return d.note(c.As, at, election), nil
	case "leader":
		leader, err := election.Leader(ctx)
		if err == lockgate.ErrElectionNoLeader {
			return object{"candidate": nil}, nil
		}
		return object{"candidate": leader.Candidate}, err
	}
	go func() {
		for leader := range election.Observe(context.Background()) {
			candidate := any(leader.Candidate)
			if leader.Term == 0 {
				candidate = nil
			}
			d.say(object{"event": "leader", "as": c.As, "candidate": candidate})
		}
	}()
	return nil, nil
}

func (d *driver) znode(ctx context.Context, c *command) (any, error) {
	at, _ := d.client(c)
	version := lockgate.AnyVersion
	if c.Version != nil {
		version = *c.Version
	}
	switch c.Do {
	case "create":
		path, err := at.client.Create(ctx, c.Path, []byte(c.Data), creation(at, c)...)
		return object{"path": path}, err
	case "get":
		found, err := at.client.Get(ctx, c.Path)
		return object{"data": string(found.Data), "version": found.Stat.Version}, err
	case "set":
		stat, err := at.client.Set(ctx, c.Path, []byte(c.Data), version)
		return object{"version": stat.Version}, err
	case "delete":
		return nil, at.client.Delete(ctx, c.Path, version)
	case "children":
		names, err := at.client.Children(ctx, c.Path)
		return object{"children": names}, err
	case "watch":
		return nil, d.watch(ctx, at, c)
	}
	grant := d.grant(c)
	_, err := grant.client.Txn(ctx, []lockgate.Op{lockgate.OpSet(c.Path, []byte(c.Data), lockgate.AnyVersion)}, grant.locked)
	return nil, err
}

func creation(at *opened, c *command) (options []lockgate.CreateOption) {
	switch strings.TrimSuffix(c.Mode, "_sequential") {
	case "ephemeral":
		options = append(options, lockgate.Ephemeral(at.session))
	case "container":
		options = append(options, lockgate.Container())
	case "ttl":
		options = append(options, lockgate.TTL(duration(c.TTLMS)))
	}
	if strings.HasSuffix(c.Mode, "_sequential") {
		options = append(options, lockgate.Sequential())
	}
	if c.Parents {
		options = append(options, lockgate.Parents())
	}
	return options
}

func (d *driver) watch(ctx context.Context, at *opened, c *command) error {
	since := uint64(0)
	if c.Kind != "exists" {
		found, err := at.client.Get(ctx, c.Path)
		if err != nil {
			return err
		}
		if since = found.Stat.Mzxid; c.Kind == "children" {
			since = found.Stat.Pzxid
		}
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), duration(c.TimeoutMS))
		defer cancel()
		if event, err := at.client.Watch(ctx, c.Path, lockgate.WatchKind(c.Kind), since); err == nil {
			d.say(object{"event": "watch", "as": c.As, "kind": event.Event, "path": event.Path})
		} else if ctx.Err() == nil {
			d.Warn("a watch has failed", "error", err)
		}
	}()
	if c.Kind == "exists" {
		// Without a position in the log the watch is armed when the server has it.
		time.Sleep(300 * time.Millisecond)
	}
	return nil
}

// cycle acquires and releases locks, each worker its own, and counts.
func (d *driver) cycle(ctx context.Context, c *command) (any, error) {
	at, _ := d.client(c)
	end := time.Now().Add(time.Duration(c.Seconds * float64(time.Second)))
	counts, errs := make([]int, c.Workers), make([]error, c.Workers)
	var workers sync.WaitGroup
	for worker := range counts {
		workers.Add(1)
		go func(worker int) {
			defer workers.Done()
			lock := lockgate.NewMutex(at.session, fmt.Sprintf("%s/%d", c.Lock, worker))
			for time.Now().Before(end) && errs[worker] == nil {
				if errs[worker] = lock.Lock(ctx); errs[worker] == nil {
					errs[worker] = lock.Unlock(ctx)
					counts[worker]++
				}
			}
		}(worker)
	}
	workers.Wait()
	cycles := 0
	for worker, count := range counts {
		if errs[worker] != nil {
			return nil, errs[worker]
		}
		cycles += count
	}
	return object{"cycles": cycles}, nil
}

func (d *driver) run(line []byte) {
	c := &command{}
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(c); err != nil {
		// The number was decoded before, or is 0.
		d.say(object{"id": c.ID, "error": object{"kind": "usage", "message": err.Error()}})
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.mu.Lock()
	d.running[c.ID] = cancel
	d.mu.Unlock()
	go func() {
		defer cancel()
		done, err := d.execute(ctx, c)
		d.mu.Lock()
		delete(d.running, c.ID)
		d.mu.Unlock()
		switch {
		case err != nil:
			d.say(object{"id": c.ID, "error": errorOf(err)})
		case done == nil:
			d.say(object{"id": c.ID, "ok": object{}})
		default:
			d.say(object{"id": c.ID, "ok": done})
		}
	}()
}

func main() {
	d := &driver{
		clients: map[string]*opened{}, grants: map[string]granted{}, ends: map[string]chan string{}, running: map[int]context.CancelFunc{},
	}
	d.say(object{"event": "ready", "client": "go", "unsupported": object{}})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		d.run(lines.Bytes())
	}
	// As deferred calls of a program do.
	for _, each := range d.clients {
		if err := each.client.Close(); err != nil {
			d.Warn("a client was not closed", "error", err)
		}
	}
}
