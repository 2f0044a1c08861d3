package lockgatetest

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"path"
	"sort"
	"strconv"
	"strings"
)

type znode struct {
	data    []byte
	version int
	zxid    uint64
	// session is that of an ephemeral znode.
	session string
}

func (z *znode) stat() object {
	return object{"version": z.version, "mzxid": z.zxid, "pzxid": z.zxid}
}

// operation is one of a transaction.
type operation struct {
	body
	Path    string
	Lock    string
	Token   uint64 `json:"fencing_token"`
	Version *int   `json:"version"`
}

func (b body) bytes() ([]byte, *problem) {
	if b.Data != nil {
		return []byte(*b.Data), nil
	}
	data, err := base64.StdEncoding.DecodeString(b.Base64)
	if err != nil {
		return nil, errBadRequest
	}
	return data, nil
}

// notify wakes the watches.
func (c *Cluster) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *Cluster) znode(method, at, version string, asked body) (any, *problem) {
	if method == http.MethodPost {
		return c.create(at, asked)
	}
	found := c.znodes[at]
	if found == nil {
		return nil, errNoZnode
	}
	if method == http.MethodGet {
		children := []object{}
		for _, name := range c.children(at) {
			children = append(children, object{"name": name})
		}
		data := base64.StdEncoding.EncodeToString(found.data)
		return object{"path": at, "data_base64": data, "stat": found.stat(), "children": children, "next_cursor": nil}, nil
	}
	if version != "" && version != "-1" && version != strconv.Itoa(found.version) {
		return nil, &problem{http.StatusConflict, "bad_version"}
	}
	if method == http.MethodDelete {
		if len(c.children(at)) > 0 {
			return nil, &problem{http.StatusConflict, "not_empty"}
		}
		c.remove(at)
		return nil, nil
	}
	data, bad := asked.bytes()
	if bad != nil {
		return nil, bad
	}
	found.data, found.zxid = data, c.nextZxid()
	found.version++
	c.notify()
	return object{"stat": found.stat()}, nil
}

func (c *Cluster) children(parent string) []string {
	names := []string{}
	for each := range c.znodes {
		if each != "/" && path.Dir(each) == parent {
			names = append(names, path.Base(each))
		}
	}
	sort.Strings(names)
	return names
}

func (c *Cluster) create(at string, asked body) (any, *problem) {
	if strings.HasSuffix(asked.Mode, "sequential") {
		c.numbers++
		at += fmt.Sprintf("%010d", c.numbers)
	}
	data, bad := asked.bytes()
	switch {
	case bad != nil:
		return nil, bad
	case c.znodes[at] != nil:
		return nil, &problem{http.StatusConflict, "node_exists"}
	case c.znodes[path.Dir(at)] == nil && !asked.Parents:
		return nil, errNoZnode
	case c.znodes[path.Dir(at)] == nil:
		if _, bad := c.create(path.Dir(at), body{Parents: true}); bad != nil {
			return nil, bad
		}
	}
	made := &znode{data: data, zxid: c.nextZxid()}
	if strings.HasPrefix(asked.Mode, "ephemeral") {
		made.session = asked.Session
	}
	c.znodes[at] = made
	c.notify()
	return object{"path": at, "stat": made.stat()}, nil
}

// remove removes a znode and all below it.
func (c *Cluster) remove(at string) {
	for each := range c.znodes {
		if each == at || strings.HasPrefix(each, at+"/") {
			delete(c.znodes, each)
		}
	}
	c.notify()
}

// image is what a watch compares.
func (c *Cluster) image(at string) string {
	if lock := strings.TrimPrefix(at, "/locks/"); lock != at {
		return fmt.Sprint(c.holders[lock])
	}
	if found := c.znodes[at]; found != nil {
		return fmt.Sprint(found.zxid, c.children(at))
	}
	return ""
}

func (c *Cluster) watch(r *http.Request, at string) (any, *problem) {
	query := r.URL.Query()
	ms, err := strconv.ParseInt(query.Get("timeout_ms"), 10, 64)
	if err != nil {
		return nil, errBadRequest
	}
	before := c.image(at)
	fired := object{"event": "changed", "path": at, "zxid": c.zxid}
	if found, since := c.znodes[at], query.Get("zxid"); found != nil && since != "" && since != strconv.FormatUint(found.zxid, 10) {
		return fired, nil
	}
	for c.image(at) == before {
		changed := c.changed
		c.wait(r.Context(), changed, &ms)
		select {
		case <-changed:
		default:
			return nil, nil
		}
	}
	return fired, nil
}

// transaction checks first, and applies then.
func (c *Cluster) transaction(asked body) (any, *problem) {
	for _, op := range asked.Ops {
		for kind, each := range op {
			found := c.znodes[each.Path]
			switch {
			case kind == "held":
				held := false
				for _, holder := range c.holders[each.Lock] {
					held = held || holder.Token == each.Token && holder.Session == asked.Session
				}
				if !held {
					return nil, errNotHolder
				}
			case kind == "create":
			case found == nil:
				return nil, errNoZnode
			case each.Version != nil && *each.Version != -1 && *each.Version != found.version:
				return nil, &problem{http.StatusConflict, "bad_version"}
			}
		}
	}
	methods := map[string]string{"create": http.MethodPost, "set": http.MethodPut, "delete": http.MethodDelete}
	results := []object{}
	for _, op := range asked.Ops {
		for kind, each := range op {
			var done any = object{}
			if method := methods[kind]; method != "" {
				each.body.Session = asked.Session
				answer, failed := c.znode(method, each.Path, "", each.body)
				if failed != nil {
					return nil, failed
				}
				if answer != nil {
					done = answer
				}
			}
			results = append(results, object{kind: done})
		}
	}
	return object{"results": results}, nil
}
