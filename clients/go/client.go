// Package lockgate is a client of the lock server Lockgate: locks with a fencing token, whose loss is told before another
// session can be granted them. Its names are those of etcd's package concurrency.
package lockgate

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mrand "math/rand"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	firstPause   = 10 * time.Millisecond
	longestPause = 250 * time.Millisecond
	shortestTry  = 500 * time.Millisecond
	longestTry   = 5 * time.Second
)

// Config names the servers of a cluster, and how to speak to them.
type Config struct {
	// Endpoints are the servers, as HOST:PORT.
	Endpoints []string
	// Patience is the time for a call at all servers together, beside a wait. The default is 10 s.
	Patience time.Duration
	// CAFile, CertFile and KeyFile are PEM files. With CAFile or CertFile, servers are spoken to by TLS.
	CAFile, CertFile, KeyFile string
	// Token returns the token of the caller. It is asked whenever a session is opened. See StaticToken.
	Token func(context.Context) (string, error)
	// Traceparent returns the trace context that requests of the caller pass on, or "".
	Traceparent func(context.Context) string
	// Logf is called with losses and with retries.
	Logf func(format string, args ...any)
	// OnRequest is called after each attempt with its outcome: ok, unavailable, unknown, or the code of a refusal.
	OnRequest func(method, path, outcome string, took time.Duration)
}

// StaticToken returns a provider of one token.
func StaticToken(token string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return token, nil }
}

// Client speaks to the servers of one cluster. It may be used by several goroutines.
type Client struct {
	config  Config
	scheme  string
	http    *http.Client
	servers *servers
}

// New returns a client. It sends no request.
func New(config Config) (*Client, error) {
	if len(config.Endpoints) == 0 {
		return nil, errors.New("lockgate: no endpoints")
	}
	for _, address := range config.Endpoints {
		if _, _, err := net.SplitHostPort(address); err != nil {
			return nil, fmt.Errorf("lockgate: an endpoint is HOST:PORT: %w", err)
		}
	}
	if config.Patience <= 0 {
		config.Patience = 10 * time.Second
	}
	if config.Logf == nil {
		config.Logf = func(string, ...any) {}
	}
	transport := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 2 * time.Second}).DialContext,
		TLSHandshakeTimeout: 2 * time.Second,
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     30 * time.Second,
	}
	c := &Client{config: config, scheme: "http"}
	if config.CAFile != "" || config.CertFile != "" {
		secured, err := tlsConfig(config)
		if err != nil {
			return nil, err
		}
		transport.TLSClientConfig, c.scheme = secured, "https"
	}
	noRedirect := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.http = &http.Client{Transport: transport, CheckRedirect: noRedirect}
	c.servers = newServers(c, config.Token)
	return c, nil
}

func tlsConfig(config Config) (*tls.Config, error) {
	secured := &tls.Config{MinVersion: tls.VersionTLS12}
	if config.CAFile != "" {
		pem, err := os.ReadFile(config.CAFile)
		if err != nil {
			return nil, fmt.Errorf("lockgate: %w", err)
		}
		secured.RootCAs = x509.NewCertPool()
		if !secured.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("lockgate: no certificate in %s", config.CAFile)
		}
	}
	if config.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(config.CertFile, config.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("lockgate: %w", err)
		}
		secured.Certificates = []tls.Certificate{pair}
	}
	return secured, nil
}

// Close closes the idle connections. Close sessions first.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Verify asks the cluster whether the lock is held with this fencing token.
func (c *Client) Verify(ctx context.Context, lock string, token uint64) (bool, error) {
	var answer struct{ Held bool }
	path := "/v1/locks/" + url.PathEscape(lock) + "/check?fencing_token=" + strconv.FormatUint(token, 10)
	err := c.servers.ask(ctx, "GET", path, nil, c.config.Patience, &answer)
	return answer.Held, err
}

type fields = map[string]any

func requestID() string {
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		panic("lockgate: no random numbers: " + err.Error())
	}
	return hex.EncodeToString(id[:])
}

// server is one server. Its fields are guarded by the mutex of its servers.
type server struct {
	address   string
	notBefore time.Time
	// suspected is closed, and replaced, when the server leaves a heartbeat without an answer.
	suspected chan struct{}
	waits     int
}

// servers repeats requests at one server after the other.
type servers struct {
	client  *Client
	token   func(context.Context) (string, error)
	mu      sync.Mutex
	list    []*server
	current int
}

func newServers(c *Client, token func(context.Context) (string, error)) *servers {
	s := &servers{client: c, token: token, current: mrand.New(mrand.NewSource(time.Now().UnixNano())).Intn(len(c.config.Endpoints))}
	for _, address := range c.config.Endpoints {
		s.list = append(s.list, &server{address: address, suspected: make(chan struct{})})
	}
	return s
}

// pinned returns the same servers with the token of this moment: no other token may use a session.
func (s *servers) pinned(ctx context.Context) (*servers, error) {
	token := s.token
	if token != nil {
		text, err := token(ctx)
		if err != nil {
			return nil, &Unavailable{"the provider of tokens has failed: " + err.Error()}
		}
		token = StaticToken(text)
	}
	return newServers(s.client, token), nil
}

func (s *servers) now() *server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list[s.current]
}

// turnAway makes the next server the current one. Servers that named a time come last.
func (s *servers) turnAway(from *server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.list[s.current] != from {
		return
	}
	began, best := time.Now(), -1
	for i := 1; i <= len(s.list); i++ {
		at := (s.current + i) % len(s.list)
		if best < 0 || !s.list[at].notBefore.After(began) && s.list[best].notBefore.After(began) {
			best = at
		}
	}
	s.current = best
}

// suspect notifies the calls that wait at this server, and changes to another one.
func (s *servers) suspect(silent *server) {
	s.mu.Lock()
	close(silent.suspected)
	silent.suspected = make(chan struct{})
	s.mu.Unlock()
	s.turnAway(silent)
}

// pause returns the time until the next attempt, and doubles the pause.
func (s *servers) pause(pause *time.Duration) time.Duration {
	wait := *pause/2 + time.Duration(mrand.Int63n(int64(*pause/2)))
	if *pause *= 2; *pause > longestPause {
		*pause = longestPause
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if named := time.Until(s.list[s.current].notBefore); named > wait {
		return named
	}
	return wait
}

func (s *servers) request(ctx context.Context, at *server, method, path string, body any) (*http.Request, error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, s.client.scheme+"://"+at.address+path, content)
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if s.token != nil {
		token, err := s.token(ctx)
		if err != nil {
			return nil, &notExecuted{"the provider of tokens has failed: " + err.Error()}
		}
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if trace := s.client.config.Traceparent; trace != nil {
		if parent := trace(ctx); parent != "" {
			r.Header.Set("Traceparent", parent)
		}
	}
	return r, nil
}

// send makes one attempt. Its error is a *Refused, *notExecuted or *uncertain.
func (s *servers) send(ctx context.Context, at *server, method, path string, body, into any) error {
	began := time.Now()
	err := s.attempt(ctx, at, method, path, body, into)
	if observe := s.client.config.OnRequest; observe != nil {
		outcome := "ok"
		switch e := err.(type) {
		case nil:
		case *Refused:
			outcome = e.Code
		case *notExecuted:
			outcome = "unavailable"
		default:
			outcome = "unknown"
		}
		observe(method, strings.SplitN(path, "?", 2)[0], outcome, time.Since(began))
	}
	return err
}

func (s *servers) attempt(ctx context.Context, at *server, method, path string, body, into any) error {
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	r, err := s.request(httptrace.WithClientTrace(ctx, trace), at, method, path, body)
	if err != nil {
		return err
	}
	answer, err := s.client.http.Do(r)
	if err != nil {
		if connected.Load() {
			return &uncertain{err.Error()}
		}
		return &notExecuted{err.Error()}
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return &uncertain{err.Error()}
	}
	return s.judge(at, answer, text, into)
}

// judge decides by the code of the answer alone.
func (s *servers) judge(at *server, answer *http.Response, text []byte, into any) error {
	if answer.StatusCode/100 == 2 {
		if into == nil || len(bytes.TrimSpace(text)) == 0 {
			return nil
		}
		if err := json.Unmarshal(text, into); err != nil {
			return &uncertain{at.address + ": " + err.Error()}
		}
		return nil
	}
	var problem struct{ Code, Detail string }
	if err := json.Unmarshal(text, &problem); err != nil || problem.Code == "" {
		// Not from a server of the cluster: a proxy's page, for example.
		return &uncertain{fmt.Sprintf("%s: status %d without a code", at.address, answer.StatusCode)}
	}
	why := at.address + ": " + problem.Code + ": " + problem.Detail
	switch problem.Code {
	case "unavailable", "read_only", "request_timeout", "too_many_requests":
		if seconds, err := strconv.ParseFloat(answer.Header.Get("Retry-After"), 64); err == nil && seconds > 0 {
			s.mu.Lock()
			at.notBefore = time.Now().Add(time.Duration(seconds * float64(time.Second)))
			s.mu.Unlock()
		}
		return &notExecuted{why}
	case "outcome_unknown":
		return &uncertain{why}
	}
	if answer.StatusCode/100 != 4 {
		return &uncertain{why}
	}
	return &Refused{Code: problem.Code, Detail: problem.Detail, Status: answer.StatusCode}
}

// ask sends an idempotent request until a server gives a definite answer, or the time is over.
func (s *servers) ask(ctx context.Context, method, path string, body any, total time.Duration, into any) error {
	deadline, pause := time.Now().Add(total), firstPause
	changes, inDoubt := method != "GET", false
	for {
		within := time.Until(deadline)
		if within > longestTry {
			within = longestTry
		} else if within < shortestTry {
			within = shortestTry
		}
		at := s.now()
		attempt, cancel := context.WithTimeout(ctx, within)
		err := s.send(attempt, at, method, path, body, into)
		cancel()
		switch e := err.(type) {
		case nil:
			return nil
		case *Refused:
			// The caller may have had the right when an earlier attempt was executed, and may have lost it since.
			if inDoubt && e.concernsCaller() {
				return &OutcomeUnknown{e.Detail}
			}
			return e
		case *notExecuted:
		case *uncertain:
			inDoubt = inDoubt || changes
		default:
			return err
		}
		s.turnAway(at)
		wait := s.pause(&pause)
		if time.Until(deadline) <= wait {
			return inDoubtError(inDoubt, err.Error())
		}
		s.client.config.Logf("lockgate: %s %s is sent again: %v", method, path, err)
		if !sleep(ctx, wait) {
			if inDoubt {
				return &OutcomeUnknown{err.Error()}
			}
			return ctx.Err()
		}
	}
}

// sleep returns false if the context ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
