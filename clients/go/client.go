package lockgate

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"
)

// Logger gets the messages of a client: losses as warnings, retries for debugging. A *slog.Logger is one.
type Logger interface {
	Debug(msg string, args ...any)
	Warn(msg string, args ...any)
}

type silent struct{}

func (silent) Debug(string, ...any) {}
func (silent) Warn(string, ...any)  {}

// Config names the servers of a cluster, and how to speak to them.
type Config struct {
	// Endpoints are the servers, as HOST:PORT.
	Endpoints []string
	// Patience is the time for a call at all servers together, beside a wait. The default is 10 s.
	Patience time.Duration
	// AtLeader makes sessions use the server that leads, which answers a round trip between servers earlier.
	AtLeader bool
	// CAFile, CertFile and KeyFile are PEM files. With CAFile or CertFile, servers are spoken to by TLS.
	CAFile, CertFile, KeyFile string
	// Token returns the token of the caller. A session keeps the token with which it was opened. See StaticToken.
	Token func(context.Context) (string, error)
	// Traceparent returns the trace context that requests of the caller pass on, or "".
	Traceparent func(context.Context) string
	// Logger gets losses and retries. Without one they are not logged.
	Logger Logger
	// OnRequest is called after each attempt with its operation and outcome: ok, unavailable, unknown, or the code of a refusal.
	OnRequest func(operation, outcome string, took time.Duration)
	// StartSpan begins a span of the caller's trace for one attempt. It returns the span's trace context, which the server continues, and a
	// function that ends the span with the outcome, as of OnRequest.
	StartSpan func(ctx context.Context, operation, server string) (traceparent string, end func(outcome string))
}

// StaticToken returns a provider of one token.
func StaticToken(token string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return token, nil }
}

// Client sends requests to the servers of one cluster. Several goroutines may use it.
type Client struct {
	config       Config
	answerWithin time.Duration
	scheme       string
	http         *http.Client
	servers      *servers

	mu       sync.Mutex
	idle     *sync.Cond
	closed   bool
	running  int
	sessions map[*Session]bool
	counts   map[string]uint64
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
	if config.Logger == nil {
		config.Logger = silent{}
	}
	transport := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 2 * time.Second}).DialContext,
		TLSHandshakeTimeout: 2 * time.Second,
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     30 * time.Second,
	}
	c := &Client{config: config, answerWithin: longestTry, scheme: "http", sessions: map[*Session]bool{}, counts: map[string]uint64{}}
	c.idle = sync.NewCond(&c.mu)
	if config.Patience < longestTry {
		c.answerWithin = config.Patience
	}
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

// Close closes the sessions of the client, so that their locks are free at once. Go runs nothing at the end of a program, so defer it.
func (c *Client) Close() error {
	c.mu.Lock()
	var open []*Session
	for s := range c.sessions {
		open = append(open, s)
	}
	c.mu.Unlock()
	var failed error
	for _, s := range open {
		if err := s.Close(); err != nil {
			failed = err
		}
	}
	c.mu.Lock()
	c.closed = true
	for c.running > 0 {
		c.idle.Wait()
	}
	c.mu.Unlock()
	c.http.CloseIdleConnections()
	return failed
}

func (c *Client) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// background runs the last request of a call that has ended. Close waits for it.
func (c *Client) background(what string, run func(context.Context) error) {
	c.mu.Lock()
	c.running++
	c.mu.Unlock()
	go func() {
		if err := run(context.Background()); err != nil {
			c.config.Logger.Warn(what+" has failed", "error", err)
		}
		c.mu.Lock()
		c.running--
		c.idle.Broadcast()
		c.mu.Unlock()
	}()
}

func (c *Client) count(name string) {
	c.mu.Lock()
	c.counts[name]++
	c.mu.Unlock()
}

func (c *Client) observe(operation, outcome string, took time.Duration) {
	c.mu.Lock()
	c.counts["requests"]++
	c.counts["requests_"+outcome]++
	c.mu.Unlock()
	if c.config.OnRequest != nil {
		c.config.OnRequest(operation, outcome, took)
	}
}

// Metrics returns counts: requests, requests_ok, requests_CODE, sessions_opened, acquired, lost. As expvar.Func it can be published.
func (c *Client) Metrics() map[string]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := make(map[string]uint64, len(c.counts))
	for name, count := range c.counts {
		counts[name] = count
	}
	return counts
}

// Contender is a holder of a lock, or a waiter.
type Contender struct {
	Holder  string
	Session string
	Owner   string
	Note    string
	Mode    Mode
	Permits int
	Token   uint64 `json:"fencing_token"`
}

// LockState has the holders of a lock, and its queue.
type LockState struct {
	Holders, Queue []Contender
}

// Inspect returns holders and queue of a lock. An unused lock has neither.
func (c *Client) Inspect(ctx context.Context, lock string) (LockState, error) {
	state, err := askFor[LockState](ctx, c.servers, get("/v1/locks/"+segment(lock)+"?linearizable=true"), c.config.Patience)
	if Code(err) == "no_lock" {
		return LockState{}, nil
	}
	return state, err
}

// Verify asks the cluster whether the lock is held with this fencing token.
func (c *Client) Verify(ctx context.Context, lock string, token uint64) (bool, error) {
	path := "/v1/locks/" + segment(lock) + "/check?fencing_token=" + strconv.FormatUint(token, 10)
	answer, err := askFor[struct{ Held bool }](ctx, c.servers, get(path), c.config.Patience)
	return answer.Held, err
}

// RequestRelease asks the holders of a lock to release it. They decide.
func (c *Client) RequestRelease(ctx context.Context, lock, reason string) error {
	body := fields{"reason": reason, "request_id": requestID()}
	_, err := c.servers.ask(ctx, post("/v1/locks/"+segment(lock)+"/release-request", body), c.config.Patience)
	return err
}

// Break takes a lock from all its holders by force. They learn of it, but may be in the middle of a step.
func (c *Client) Break(ctx context.Context, lock, reason string) error {
	state, err := c.Inspect(ctx, lock)
	for _, each := range state.Holders {
		body := fields{"holder": each.Holder, "reason": reason, "request_id": requestID()}
		if _, failed := c.servers.ask(ctx, post("/v1/locks/"+segment(lock)+"/break", body), c.config.Patience); failed != nil {
			err = failed
		}
	}
	return err
}
