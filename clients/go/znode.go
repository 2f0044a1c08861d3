package lockgate

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"time"
)

// AnyVersion stands for every version of a znode.
const AnyVersion = -1

// Stat is what a znode has beside its data.
type Stat struct {
	Version int
	// Mzxid and Pzxid are the positions of the last change of the data and of the children, for Watch.
	Mzxid, Pzxid   uint64
	EphemeralOwner string `json:"ephemeral_owner"`
	NumChildren    int    `json:"num_children"`
}

// Znode is a znode as it was read.
type Znode struct {
	Path string
	// Data is nil for null data.
	Data []byte
	Stat Stat
}

// CreateOption changes how a znode is created.
type CreateOption func(*creation)

type creation struct {
	path       string
	data       []byte
	base       string
	sequential bool
	parents    bool
	ttl        time.Duration
	ephemeral  *Session
}

// Ephemeral lets the znode live as long as the session, which is opened if it is not.
func Ephemeral(s *Session) CreateOption {
	return func(c *creation) { c.base, c.ephemeral = "ephemeral", s }
}

// Container lets the cluster remove the znode a minute after its last child.
func Container() CreateOption { return func(c *creation) { c.base = "container" } }

// TTL lets the cluster remove the znode when it has no children and was not replaced for this time.
func TTL(ttl time.Duration) CreateOption {
	return func(c *creation) { c.base, c.ttl = "ttl", ttl }
}

// Sequential appends a rising number to the path.
func Sequential() CreateOption { return func(c *creation) { c.sequential = true } }

// Parents creates missing parents as containers.
func Parents() CreateOption { return func(c *creation) { c.parents = true } }

func newCreation(path string, data []byte, options []CreateOption) *creation {
	c := &creation{base: "persistent", path: path, data: data}
	for _, option := range options {
		option(c)
	}
	return c
}

// request returns the fields of the request, and the session of an ephemeral znode, which it opens.
func (c *creation) request(ctx context.Context) (fields, *openSession, error) {
	body := fields{"mode": c.base, "data_base64": base64.StdEncoding.EncodeToString(c.data)}
	if c.sequential {
		body["mode"] = c.base + "_sequential"
	}
	if c.parents {
		body["parents"] = true
	}
	if c.ttl > 0 {
		body["ttl_ms"] = milliseconds(c.ttl)
	}
	if c.ephemeral == nil {
		return body, nil, nil
	}
	open, err := c.ephemeral.live(ctx)
	return body, open, err
}

// znodePath returns the path of the API for a znode.
func znodePath(prefix, path string) (string, error) {
	if !strings.HasPrefix(path, "/") {
		return "", fmt.Errorf("lockgate: the path of a znode begins with a slash: %q", path)
	}
	// A percent sign in a name is part of the name.
	return prefix + strings.ReplaceAll(url.PathEscape(path), "%2F", "/"), nil
}

// askZnode sends a request about one znode.
func askZnode[T any](ctx context.Context, s *servers, method, path, query string, body fields) (found T, err error) {
	if path, err = znodePath("/v1/znodes", path); err != nil {
		return found, err
	}
	return askFor[T](ctx, s, call{method, path + query, body}, s.client.config.Patience)
}

// Create creates a znode, persistent unless an option says otherwise, and returns its path.
func (c *Client) Create(ctx context.Context, path string, data []byte, options ...CreateOption) (string, error) {
	at := c.servers
	body, open, err := newCreation(path, data, options).request(ctx)
	if err != nil {
		return "", err
	}
	body["request_id"] = requestID()
	if open != nil {
		at, body["session"] = open.servers, open.id
	}
	found, err := askZnode[Znode](ctx, at, "POST", path, "", body)
	if open != nil {
		open.ended(err)
	}
	return found.Path, err
}

// Get reads a znode.
func (c *Client) Get(ctx context.Context, path string) (Znode, error) {
	found, err := askZnode[struct {
		Data       *string
		DataBase64 *string `json:"data_base64"`
		Stat       Stat
	}](ctx, c.servers, "GET", path, "?linearizable=true", nil)
	if err != nil {
		return Znode{}, err
	}
	read := Znode{Path: path, Stat: found.Stat}
	switch {
	case found.Data != nil:
		read.Data = []byte(*found.Data)
	case found.DataBase64 != nil:
		if read.Data, err = base64.StdEncoding.DecodeString(*found.DataBase64); err != nil {
			return Znode{}, fmt.Errorf("lockgate: %w", err)
		}
	}
	return read, nil
}

// Set replaces the data if they have this version, and returns the new stat.
func (c *Client) Set(ctx context.Context, path string, data []byte, version int) (Stat, error) {
	body := fields{"data_base64": base64.StdEncoding.EncodeToString(data), "request_id": requestID()}
	found, err := askZnode[Znode](ctx, c.servers, "PUT", path, "?version="+strconv.Itoa(version), body)
	return found.Stat, err
}

// Delete deletes a znode that has this version, and no children.
func (c *Client) Delete(ctx context.Context, path string, version int) error {
	_, err := askZnode[struct{}](ctx, c.servers, "DELETE", path, "?version="+strconv.Itoa(version)+"&request_id="+requestID(), nil)
	return err
}

// Children returns the names of the children, sorted.
func (c *Client) Children(ctx context.Context, path string) ([]string, error) {
	names, query := []string{}, "?children=true&linearizable=true"
	for cursor := ""; ; {
		page, err := askZnode[struct {
			Children []struct{ Name string }
			Cursor   *string `json:"next_cursor"`
		}](ctx, c.servers, "GET", path, query+cursor, nil)
		if err != nil {
			return nil, err
		}
		for _, each := range page.Children {
			names = append(names, each.Name)
		}
		if page.Cursor == nil {
			sort.Strings(names)
			return names, nil
		}
		cursor = "&cursor=" + url.QueryEscape(*page.Cursor)
	}
}

// WatchKind is what a watch waits for.
type WatchKind string

const (
	// WatchData waits for a change of the data, or the deletion.
	WatchData WatchKind = "data"
	// WatchChildren waits for a change of the children, or the deletion.
	WatchChildren WatchKind = "children"
	// WatchExists waits for the creation, a change of the data, or the deletion.
	WatchExists WatchKind = "exists"
)

// Event is a change of a znode.
type Event struct {
	Event, Path string
	Zxid        uint64
}

// Watch waits for one change until the context ends. With since, a Mzxid (WatchData) or Pzxid (WatchChildren) of an earlier read, no change
// after that read is missed; 0 watches from now on.
func (c *Client) Watch(ctx context.Context, path string, kind WatchKind, since uint64) (Event, error) {
	query := "?linearizable=true&kind=" + string(kind)
	if since > 0 {
		query += "&zxid=" + strconv.FormatUint(since, 10)
	}
	path, err := znodePath("/v1/watch", path)
	for {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return Event{}, err
		}
		var event Event
		answer, asked := c.servers.poll(ctx, path+query+"&timeout_ms", c.longestPoll())
		if err = asked; err == nil {
			err = decode(answer, &event)
		}
		if err == nil && event.Event != "" {
			return event, nil
		}
	}
}

// Op is one operation of a transaction. OpCreate, OpSet, OpDelete and OpCheck return them.
type Op struct {
	kind   string
	fields fields
	create *creation
	err    error
}

func newOp(kind, path string, body fields) Op {
	if !strings.HasPrefix(path, "/") {
		return Op{err: fmt.Errorf("lockgate: the path of a znode begins with a slash: %q", path)}
	}
	body["path"] = path
	return Op{kind: kind, fields: body}
}

// OpCreate creates a znode.
func OpCreate(path string, data []byte, options ...CreateOption) Op {
	op := newOp("create", path, fields{})
	op.create = newCreation(path, data, options)
	return op
}

// OpSet replaces the data if they have this version.
func OpSet(path string, data []byte, version int) Op {
	return newOp("set", path, fields{"data_base64": base64.StdEncoding.EncodeToString(data), "version": version})
}

// OpDelete deletes a znode that has this version.
func OpDelete(path string, version int) Op { return newOp("delete", path, fields{"version": version}) }

// OpCheck fails the transaction if the znode has another version.
func OpCheck(path string, version int) Op { return newOp("check", path, fields{"version": version}) }

// OpResult is what an operation has done.
type OpResult struct {
	// Path is that of a created znode.
	Path string
	// Stat is that of a created or changed znode.
	Stat Stat
}

// Guard is a lock that has to be held for a transaction: a Mutex, Semaphore, MultiMutex or Election of this package.
type Guard interface{ grants() *grants }

// Txn applies all operations, or none. With guards it applies them only while these locks of one session are held.
func (c *Client) Txn(ctx context.Context, ops []Op, guards ...Guard) ([]OpResult, error) {
	at, all, body := c.servers, []fields{}, fields{"request_id": requestID()}
	var guard *hold
	for _, each := range guards {
		held := each.grants()
		if held == nil {
			return nil, ErrNotHeld
		}
		if err := held.check(); err != nil {
			return nil, err
		}
		for _, h := range held.holds {
			all = append(all, fields{"held": fields{"lock": h.lock, "fencing_token": h.facts().Token}})
		}
		guard, at, body["session"] = held.holds[0], held.open.servers, held.open.id
	}
	guarded := len(all)
	for _, op := range ops {
		if op.err != nil {
			return nil, op.err
		}
		if op.create != nil {
			created, open, err := op.create.request(ctx)
			if err != nil {
				return nil, err
			}
			if open != nil {
				// A transaction has one session.
				at, body["session"] = open.servers, open.id
			}
			created["path"] = op.create.path
			op.fields = created
		}
		all = append(all, fields{op.kind: op.fields})
	}
	body["ops"] = all
	done, err := askFor[struct{ Results []map[string]OpResult }](ctx, at, post("/v1/txn", body), c.config.Patience)
	if err != nil {
		if guard != nil {
			err = guard.life.explain(guard, err)
		}
		return nil, err
	}
	results := []OpResult{}
	for _, each := range done.Results {
		for _, result := range each {
			results = append(results, result)
		}
	}
	if len(results) < guarded {
		return nil, fmt.Errorf("lockgate: %d results of %d operations", len(results), len(all))
	}
	return results[guarded:], nil
}
