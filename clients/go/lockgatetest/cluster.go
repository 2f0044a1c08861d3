// Package lockgatetest has a cluster in memory, for the tests of programs that use package lockgate. Clients are the real ones, over a
// server on the loopback interface:
//
//	cluster := lockgatetest.NewCluster()
//	defer cluster.Close()
//	client, err := cluster.Client(lockgate.Config{})
//	// … a program locks orders/42 …
//	cluster.Break("orders/42", "test")
//
// It keeps the rules of locks, sessions, leases and simple znodes. Sessions end when they are closed or by ExpireSessions; time ends none. It
// has no access control, no quotas, and no failures of servers. A failing network is made around ServeHTTP.
package lockgatetest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"lockgate"
)

type object = map[string]any

// problem is an error of the API.
type problem struct {
	status int
	code   string
}

var (
	errNotHolder  = &problem{http.StatusConflict, "not_holder"}
	errNoZnode    = &problem{http.StatusNotFound, "no_znode"}
	errExpired    = &problem{http.StatusGone, "session_expired"}
	errNoRoute    = &problem{http.StatusNotFound, "no_route"}
	errBadRequest = &problem{http.StatusBadRequest, "bad_request"}
)

// Cluster is a cluster in memory. Several goroutines may use it.
type Cluster struct {
	server *httptest.Server

	mu       sync.Mutex
	numbers  uint64
	zxid     uint64
	sessions map[string]*session
	holders  map[string][]*contender
	queue    []*acquire
	requests map[string]*acquire
	znodes   map[string]*znode
	// changed is closed, and replaced, when a znode has changed.
	changed chan struct{}
}

// session keeps all its events, from which a stream continues after the last one that its reader has seen.
type session struct {
	ttl    int64
	events []event
	// more is closed, and replaced, with each event.
	more chan struct{}
}

type event struct {
	zxid uint64
	text string
}

// contender is a holder of a lock or a waiter.
type contender struct {
	Lock    string `json:"lock"`
	Holder  string `json:"holder"`
	Session string `json:"session"`
	Owner   string `json:"owner"`
	Note    string `json:"note"`
	Mode    string `json:"mode"`
	Limit   int    `json:"limit"`
	Permits int    `json:"permits"`
	Token   uint64 `json:"fencing_token"`
	Holds   int    `json:"holds"`

	ttl       int64
	upgrading chan struct{}
}

// acquire is the contenders of one call, which are granted together.
type acquire struct {
	contenders []*contender
	// done is closed when they are granted, or cannot be any more.
	done chan struct{}
}

// NewCluster starts a cluster. Close ends it.
func NewCluster() *Cluster {
	c := &Cluster{
		sessions: map[string]*session{},
		holders:  map[string][]*contender{},
		requests: map[string]*acquire{},
		znodes:   map[string]*znode{"/": {}},
		changed:  make(chan struct{}),
	}
	c.server = httptest.NewServer(c)
	return c
}

// Close ends the cluster.
func (c *Cluster) Close() {
	c.server.CloseClientConnections()
	c.server.Close()
}

// Endpoint returns the address of its server, as HOST:PORT.
func (c *Cluster) Endpoint() string { return c.server.Listener.Addr().String() }

// Client returns a client of this cluster.
func (c *Cluster) Client(config lockgate.Config) (*lockgate.Client, error) {
	config.Endpoints = []string{c.Endpoint()}
	return lockgate.New(config)
}

// Break takes a lock from its holders by force.
func (c *Cluster) Break(lock, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, each := range append([]*contender(nil), c.holders[lock]...) {
		c.end(each, "broken", reason)
	}
	c.grant()
}

// RequestRelease asks the holders of a lock to release it.
func (c *Cluster) RequestRelease(lock, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requestRelease(lock, reason)
}

// ExpireSessions ends all sessions, as if no heartbeat had arrived for their TTL.
func (c *Cluster) ExpireSessions() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.sessions {
		c.endSession(id, "session_expired")
	}
	c.grant()
}

// body is the union of the fields of all requests.
type body struct {
	Session   string
	Holder    string
	Holders   []contender
	Owner     string
	Note      string
	Reason    string
	Mode      string
	Limit     int
	Permits   int
	Reentrant bool
	Locks     []struct {
		Name, Mode     string
		Limit, Permits int
		Reentrant      bool
	}
	Wait      string
	WaitMS    *int64  `json:"wait_ms"`
	TTLMS     int64   `json:"ttl_ms"`
	RequestID string  `json:"request_id"`
	Data      *string `json:"data"`
	Base64    string  `json:"data_base64"`
	Parents   bool
	Ops       []map[string]operation
	Requests  []struct {
		Method, Path string
		Body         json.RawMessage
	}
}

// ServeHTTP answers a request of the HTTP API.
func (c *Cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Names are one segment, with their slashes encoded.
	parts := strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), "/v1/"), "/")
	for i, part := range parts {
		decoded, err := url.PathUnescape(part)
		if err != nil {
			write(w, nil, errBadRequest)
			return
		}
		parts[i] = decoded
	}
	var asked body
	if r.ContentLength != 0 {
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			write(w, nil, errBadRequest)
			return
		}
	}
	if parts[0] == "sessions" && len(parts) == 3 && parts[2] == "events" {
		c.stream(w, r, parts[1])
		return
	}
	if parts[0] == "batch" {
		write(w, marshal(object{"results": c.batch(r, asked)}), nil)
		return
	}
	c.mu.Lock()
	answer, failed := c.route(r, parts, asked)
	c.grant()
	text := marshal(answer)
	c.mu.Unlock()
	write(w, text, failed)
}

// batch answers each request of a batch as if it had come alone.
func (c *Cluster) batch(r *http.Request, asked body) []object {
	results := []object{}
	for _, each := range asked.Requests {
		recorder := httptest.NewRecorder()
		one := httptest.NewRequest(each.Method, each.Path, bytes.NewReader(each.Body))
		c.ServeHTTP(recorder, one.WithContext(r.Context()))
		field := "body"
		if recorder.Code >= http.StatusBadRequest {
			field = "problem"
		}
		results = append(results, object{"status": recorder.Code, field: json.RawMessage(recorder.Body.Bytes())})
	}
	return results
}

func marshal(answer any) []byte {
	text, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	return text
}

func write(w http.ResponseWriter, text []byte, failed *problem) {
	status := http.StatusOK
	if failed != nil {
		text = marshal(object{"code": failed.code, "detail": "an answer of the cluster in memory", "status": failed.status})
		status = failed.status
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// A caller that has gone needs no answer.
	_, _ = w.Write(text)
}

func (c *Cluster) route(r *http.Request, parts []string, asked body) (any, *problem) {
	name, verb := "", parts[len(parts)-1]
	if len(parts) > 1 {
		name = parts[1]
	}
	switch parts[0] {
	case "sessions":
		return c.session(r.Method, name, asked)
	case "leases":
		return c.lease(r.Method, name, asked)
	case "locks", "multilock":
		return c.lock(r, name, verb, asked)
	case "znodes":
		return c.znode(r.Method, "/"+strings.Join(parts[1:], "/"), r.URL.Query().Get("version"), asked)
	case "watch":
		return c.watch(r, "/"+strings.Join(parts[1:], "/"))
	case "txn":
		return c.transaction(asked)
	}
	return nil, errNoRoute
}

func (c *Cluster) number(prefix string) string {
	c.numbers++
	return prefix + strconv.FormatUint(c.numbers, 10)
}

func (c *Cluster) nextZxid() uint64 {
	c.zxid++
	return c.zxid
}

// wait unlocks the cluster until the channel is closed, the time is over (nil: never), or the caller has gone.
func (c *Cluster) wait(ctx context.Context, done <-chan struct{}, ms *int64) {
	c.mu.Unlock()
	defer c.mu.Lock()
	var over <-chan time.Time
	if ms != nil {
		timer := time.NewTimer(time.Duration(*ms) * time.Millisecond)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-done:
	case <-over:
	case <-ctx.Done():
	}
}

// Sessions.

func (c *Cluster) session(method, id string, asked body) (any, *problem) {
	if id == "" {
		id = c.number("s")
		c.sessions[id] = &session{ttl: asked.TTLMS, more: make(chan struct{})}
		return object{"session": id, "ttl_ms": asked.TTLMS}, nil
	}
	found := c.sessions[id]
	if method == http.MethodDelete {
		if found != nil {
			c.endSession(id, "session_closed")
		}
		return nil, nil
	}
	if found == nil {
		return nil, errExpired
	}
	return object{"ttl_ms": found.ttl, "leads": true, "release_requested": []object{}, "held": c.heldBy(id), "complete": true}, nil
}

func (c *Cluster) heldBy(session string) []*contender {
	held := []*contender{}
	for _, holders := range c.holders {
		for _, each := range holders {
			if each.Session == session {
				held = append(held, each)
			}
		}
	}
	return held
}

func (c *Cluster) endSession(id, ended string) {
	found := c.sessions[id]
	delete(c.sessions, id)
	for _, each := range c.heldBy(id) {
		c.end(each, ended, "")
	}
	for _, call := range append([]*acquire(nil), c.queue...) {
		if call.contenders[0].Session == id {
			c.leave(call)
		}
	}
	for path, each := range c.znodes {
		if each.session == id {
			c.remove(path)
		}
	}
	if found != nil {
		found.say(c.nextZxid(), "session_ended", object{"reason": ended})
	}
}

// say adds an event to a session that lives.
func (c *Cluster) say(session, event string, data any) {
	if found := c.sessions[session]; found != nil {
		found.say(c.nextZxid(), event, data)
	}
}

func (s *session) say(zxid uint64, name string, data any) {
	s.events = append(s.events, event{zxid, fmt.Sprintf("id: %d\nevent: %s\ndata: %s\n\n", zxid, name, marshal(data))})
	close(s.more)
	s.more = make(chan struct{})
}

func (c *Cluster) stream(w http.ResponseWriter, r *http.Request, id string) {
	c.mu.Lock()
	found := c.sessions[id]
	c.mu.Unlock()
	last, err := strconv.ParseUint(r.Header.Get("Last-Event-ID"), 10, 64)
	if found == nil || err != nil {
		write(w, nil, errExpired)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for r.Context().Err() == nil {
		// A comment, so that the client does not take the stream for a silent one.
		text := ":\n\n"
		c.mu.Lock()
		for _, each := range found.events {
			if each.zxid > last {
				text += each.text
				last = each.zxid
			}
		}
		more := found.more
		c.mu.Unlock()
		if _, err := io.WriteString(w, text); err != nil {
			return
		}
		w.(http.Flusher).Flush()
		timer := time.NewTimer(time.Second)
		select {
		case <-more:
		case <-timer.C:
		case <-r.Context().Done():
		}
		timer.Stop()
	}
}

// Locks.

func (c *Cluster) lock(r *http.Request, name, verb string, asked body) (any, *problem) {
	switch {
	case r.Method == http.MethodGet && verb == "check":
		held := false
		for _, each := range c.holders[name] {
			held = held || strconv.FormatUint(each.Token, 10) == r.URL.Query().Get("fencing_token")
		}
		return object{"held": held}, nil
	case r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/holders/"):
		return c.poll(r, verb)
	case r.Method == http.MethodGet:
		waiting := []*contender{}
		for _, call := range c.queue {
			for _, each := range call.contenders {
				if each.Lock == name {
					waiting = append(waiting, each)
				}
			}
		}
		return object{"lock": name, "holders": append([]*contender{}, c.holders[name]...), "queue": waiting}, nil
	case verb == "acquire":
		return c.acquire(r.Context(), name, asked)
	case verb == "release":
		return c.release(name, asked)
	case verb == "release-request":
		c.requestRelease(name, asked.Reason)
		return nil, nil
	case verb == "reply":
		return nil, nil
	}
	holder := c.find(asked.Holder)
	if holder == nil {
		return nil, errNotHolder
	}
	switch verb {
	case "break":
		c.end(holder, "broken", asked.Reason)
	case "upgrade":
		return c.upgrade(r.Context(), holder, asked.WaitMS)
	case "downgrade":
		holder.Mode = asked.Mode
		return *holder, nil
	default:
		return nil, errNoRoute
	}
	return nil, nil
}

func (c *Cluster) find(holder string) *contender {
	for _, holders := range c.holders {
		for _, each := range holders {
			if each.Holder == holder {
				return each
			}
		}
	}
	return nil
}

func (c *Cluster) requestRelease(lock, reason string) {
	for _, each := range c.holders[lock] {
		asked := object{"lock": lock, "holder": each.Holder, "by": "test", "reason": reason, "requested_at": c.number("")}
		c.say(each.Session, "release_requested", asked)
	}
}

// contenders returns those of an acquire: holders that are entered again, and new ones.
func (c *Cluster) contenders(name string, asked body) []*contender {
	one := contender{
		Lock: name, Session: asked.Session, Owner: asked.Owner, Note: asked.Note, Mode: asked.Mode, Limit: asked.Limit, Permits: asked.Permits,
		ttl: asked.TTLMS,
	}
	if asked.Locks == nil {
		return []*contender{c.contender(one, asked.Reentrant)}
	}
	all := []*contender{}
	for _, each := range asked.Locks {
		one.Lock, one.Mode, one.Limit, one.Permits = each.Name, each.Mode, each.Limit, each.Permits
		all = append(all, c.contender(one, each.Reentrant))
	}
	return all
}

func (c *Cluster) contender(wanted contender, reentrant bool) *contender {
	if reentrant {
		for _, each := range c.holders[wanted.Lock] {
			if each.Session == wanted.Session && each.Owner == wanted.Owner {
				return each
			}
		}
	}
	wanted.Holder = c.number("h")
	return &wanted
}

func (c *Cluster) acquire(ctx context.Context, name string, asked body) (any, *problem) {
	lease, key := asked.Session == "", asked.Session+" "+asked.RequestID
	if lease {
		asked.Session = c.number("lease-")
	} else if c.sessions[asked.Session] == nil {
		return nil, errExpired
	}
	call := c.requests[key]
	if call == nil {
		call = &acquire{c.contenders(name, asked), make(chan struct{})}
		c.requests[key] = call
		c.queue = append(c.queue, call)
		c.grant()
	}
	if one := call.contenders[0]; asked.Wait == "queue" && one.Token == 0 {
		place := object{"lock": one.Lock, "holder": one.Holder, "position": len(c.queue)}
		if lease {
			place["lease"], place["expires_in_ms"] = one.Session, one.ttl
		}
		return place, nil
	}
	if asked.WaitMS == nil || *asked.WaitMS > 0 {
		c.wait(ctx, call.done, asked.WaitMS)
	}
	c.leave(call)
	grants := []contender{}
	for _, each := range call.contenders {
		if each.Token == 0 {
			switch {
			case !lease && c.sessions[asked.Session] == nil:
				return nil, errExpired
			case asked.WaitMS != nil && *asked.WaitMS == 0:
				return nil, &problem{http.StatusConflict, "lock_busy"}
			}
			return nil, &problem{http.StatusConflict, "lock_timeout"}
		}
		grants = append(grants, *each)
	}
	switch {
	case asked.Locks != nil:
		return object{"holders": grants}, nil
	case lease:
		granted := grants[0]
		return object{
			"lock": granted.Lock, "holder": granted.Holder, "mode": granted.Mode, "fencing_token": granted.Token,
			"lease": granted.Session, "expires_in_ms": granted.ttl,
		}, nil
	}
	return grants[0], nil
}

// poll waits for a contender in the queue to be granted its lock.
func (c *Cluster) poll(r *http.Request, holder string) (any, *problem) {
	ms, err := strconv.ParseInt(r.URL.Query().Get("wait_ms"), 10, 64)
	if err != nil {
		return nil, errBadRequest
	}
	for _, call := range append([]*acquire(nil), c.queue...) {
		if one := call.contenders[0]; one.Holder == holder {
			if c.wait(r.Context(), call.done, &ms); one.Token == 0 && c.waits(call) {
				return nil, nil
			}
		}
	}
	if found := c.find(holder); found != nil {
		return *found, nil
	}
	return nil, &problem{http.StatusGone, "holder_gone"}
}

func (c *Cluster) waits(call *acquire) bool {
	for _, each := range c.queue {
		if each == call {
			return true
		}
	}
	return false
}

// leave ends a call that waits.
func (c *Cluster) leave(call *acquire) {
	for i, each := range c.queue {
		if each == call {
			c.queue = append(c.queue[:i:i], c.queue[i+1:]...)
			close(call.done)
			return
		}
	}
}

// grant grants in the order of the queue: no call overtakes one that waits for the same lock.
func (c *Cluster) grant() {
	blocked := map[string]bool{}
	for lock, holders := range c.holders {
		for _, each := range holders {
			if each.upgrading == nil {
				continue
			}
			if len(holders) > 1 {
				blocked[lock] = true
				continue
			}
			each.Mode, each.Token = "exclusive", c.nextZxid()
			close(each.upgrading)
			each.upgrading = nil
		}
	}
	for _, call := range append([]*acquire(nil), c.queue...) {
		fits := true
		for _, each := range call.contenders {
			fits = fits && !blocked[each.Lock] && (each.Token != 0 || c.fits(each))
		}
		if !fits {
			for _, each := range call.contenders {
				blocked[each.Lock] = true
			}
			continue
		}
		token := c.nextZxid()
		for _, each := range call.contenders {
			if each.Token == 0 {
				each.Token = token
				c.holders[each.Lock] = append(c.holders[each.Lock], each)
			}
			each.Holds++
		}
		c.leave(call)
		c.notify()
	}
}

func (c *Cluster) fits(wanted *contender) bool {
	holders := c.holders[wanted.Lock]
	if wanted.Mode == "semaphore" {
		limit, used := wanted.Limit, wanted.Permits
		for _, each := range holders {
			used += each.Permits
			if limit == 0 {
				limit = each.Limit
			}
		}
		return used <= limit
	}
	for _, each := range holders {
		shared := wanted.Mode == "shared" && (each.Mode == "shared" || each.Mode == "upgradeable")
		if !shared && !(wanted.Mode == "upgradeable" && each.Mode == "shared") {
			return false
		}
	}
	return true
}

func (c *Cluster) release(name string, asked body) (any, *problem) {
	wanted := asked.Holders
	if wanted == nil {
		wanted = []contender{{Lock: name, Holder: asked.Holder}}
	}
	released, known := []object{}, false
	for _, each := range wanted {
		left := object{"lock": each.Lock, "holder": each.Holder, "holds": nil}
		if holder := c.find(each.Holder); holder != nil {
			if holder.Holds--; holder.Holds == 0 {
				c.dropHolder(holder)
			}
			left["holds"], known = holder.Holds, true
		}
		released = append(released, left)
	}
	switch {
	case !known:
		return nil, errNotHolder
	case asked.Holders != nil:
		return object{"released": released}, nil
	}
	return released[0], nil
}

// dropHolder removes a holder.
func (c *Cluster) dropHolder(gone *contender) {
	holders := c.holders[gone.Lock]
	for i, each := range holders {
		if each == gone {
			c.holders[gone.Lock] = append(holders[:i:i], holders[i+1:]...)
		}
	}
	c.notify()
}

// end takes a lock from its holder.
func (c *Cluster) end(holder *contender, ended, reason string) {
	c.dropHolder(holder)
	c.say(holder.Session, "lost", object{"lock": holder.Lock, "holder": holder.Holder, "ended": ended, "by": "test", "reason": reason})
}

func (c *Cluster) upgrade(ctx context.Context, holder *contender, wait *int64) (any, *problem) {
	if holder.Mode != "exclusive" {
		done := make(chan struct{})
		holder.upgrading = done
		c.grant()
		c.wait(ctx, done, wait)
		if holder.upgrading != nil {
			holder.upgrading = nil
			if wait != nil && *wait == 0 {
				return nil, &problem{http.StatusConflict, "lock_busy"}
			}
			return nil, &problem{http.StatusConflict, "lock_timeout"}
		}
	}
	return *holder, nil
}

func (c *Cluster) lease(method, id string, asked body) (any, *problem) {
	if method == http.MethodDelete {
		c.endSession(id, "session_closed")
		return nil, nil
	}
	found := c.heldBy(id)
	for _, call := range c.queue {
		if one := call.contenders[0]; one.Session == id {
			found = append(found, one)
		}
	}
	for _, each := range found {
		if asked.TTLMS > 0 {
			each.ttl = asked.TTLMS
		}
		return object{
			"lock": each.Lock, "holder": each.Holder, "note": each.Note, "mode": each.Mode, "fencing_token": each.Token,
			"ttl_ms": each.ttl, "expires_in_ms": each.ttl,
		}, nil
	}
	return nil, &problem{http.StatusGone, "lease_expired"}
}
