package lockgate

import (
	"context"
	"sync"
	"time"
)

// rememberedLosses bounds the losses that are kept because a grant may arrive after its loss.
const rememberedLosses = 256

// ReleaseRequest is the request of another caller that a holder release its lock.
type ReleaseRequest struct {
	By          string
	Reason      string
	RequestedAt string `json:"requested_at"`
}

// hold is one granted lock. Re-entered grants of one holder share it. The mutex of its life guards all but the constant fields.
type hold struct {
	life         *life
	lock, holder string
	since        time.Duration
	// ctx is cancelled at the loss, and at the last release.
	ctx    context.Context
	cancel context.CancelFunc

	token     uint64
	mode      Mode
	entries   int
	loss      *Lost
	request   ReleaseRequest
	told      time.Duration
	onRequest []func(ReleaseRequest)
}

// check returns the loss of the hold as of this moment, by the clock and without a request.
func (h *hold) check() *Lost {
	h.life.check()
	h.life.mu.Lock()
	defer h.life.mu.Unlock()
	return h.loss
}

// grant is the answer to an acquire.
type grant struct {
	Lock, Holder string
	Mode         Mode
	Token        uint64 `json:"fencing_token"`
}

// life is one session of the cluster from its opening to its loss: its deadline, and its holds. A lost life is never used again. It sends no
// requests; Session does.
type life struct {
	client *Client
	id     string
	// ctx ends with the session.
	ctx    context.Context
	cancel context.CancelFunc
	// granted is closed at the first grant.
	granted chan struct{}

	mu         sync.Mutex
	ttl        time.Duration
	confirmed  time.Duration
	loss       *Lost
	followed   bool
	firstToken uint64
	holds      map[string]*hold
	gone       map[string]*Lost
	goneOrder  []string
	// notices are calls of the program's functions, which run after the mutex is unlocked.
	notices []func()
}

func newLife(c *Client, id string, sent, ttl time.Duration) *life {
	l := &life{client: c, id: id, granted: make(chan struct{}), ttl: ttl, confirmed: sent, holds: map[string]*hold{}, gone: map[string]*Lost{}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

func (l *life) locked(change func()) {
	l.mu.Lock()
	change()
	notices := l.notices
	l.notices = nil
	l.mu.Unlock()
	for _, notice := range notices {
		notice()
	}
}

// validUntil returns the end of the time in which the session surely lives: 1 % for a clock that is slower than the cluster's, and 100 ms in
// which the program can stop its work.
func (l *life) validUntil() time.Duration {
	if left := l.ttl - l.ttl/100 - 100*time.Millisecond; left > 0 {
		return l.confirmed + left
	}
	return l.confirmed
}

func (l *life) times() (ttl, confirmed, until time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ttl, l.confirmed, l.validUntil()
}

// confirm notes that a heartbeat which was sent at this time has been answered. A lost session stays lost, because its loss was reported.
func (l *life) confirm(sent, ttl time.Duration) {
	l.locked(func() {
		if l.checkLocked() == nil && sent >= l.confirmed {
			l.confirmed, l.ttl = sent, ttl
		}
	})
}

// check returns the loss of the session. It reads the clock itself, so that a process that was paused finds the loss first.
func (l *life) check() (loss *Lost) {
	l.locked(func() { loss = l.checkLocked() })
	return loss
}

func (l *life) checkLocked() *Lost {
	if l.loss == nil && now() >= l.validUntil() {
		l.loseLocked(&Lost{Reason: "no_heartbeat"})
	}
	return l.loss
}

// lose ends the session, unless it is lost already.
func (l *life) lose(loss *Lost) { l.locked(func() { l.loseLocked(loss) }) }

func (l *life) loseLocked(loss *Lost) {
	if l.loss != nil {
		return
	}
	l.loss = loss
	l.cancel()
	for holder := range l.holds {
		l.loseHolderLocked(holder, loss)
	}
}

func (l *life) loseHolderLocked(holder string, loss *Lost) {
	if l.gone[holder] == nil {
		l.gone[holder] = loss
		if l.goneOrder = append(l.goneOrder, holder); len(l.goneOrder) > rememberedLosses {
			delete(l.gone, l.goneOrder[0])
			l.goneOrder = l.goneOrder[1:]
		}
	}
	h := l.holds[holder]
	if h == nil {
		return
	}
	delete(l.holds, holder)
	h.loss = loss
	h.cancel()
	if loss.Reason != "closed" {
		l.notices = append(l.notices, func() {
			l.client.count("lost")
			l.client.config.Logger.Warn("a lock is lost", "lock", h.lock, "reason", loss.Reason, "by", loss.By, "detail", loss.Detail)
		})
	}
}

// enter adds a grant, which may be lost already.
func (l *life) enter(g grant, onRequest func(ReleaseRequest)) (h *hold) {
	l.locked(func() {
		h = l.holds[g.Holder]
		if h == nil {
			h = &hold{life: l, lock: g.Lock, holder: g.Holder, since: now(), token: g.Token, mode: g.Mode}
			h.ctx, h.cancel = context.WithCancel(context.Background())
			l.holds[g.Holder] = h
		}
		h.entries++
		if onRequest != nil {
			h.onRequest = append(h.onRequest, onRequest)
		}
		if l.firstToken == 0 {
			l.firstToken = g.Token
			close(l.granted)
		}
		if loss := l.gone[g.Holder]; loss != nil {
			l.loseHolderLocked(g.Holder, loss)
		} else if l.loss != nil {
			l.loseHolderLocked(g.Holder, l.loss)
		}
	})
	return h
}

// leave removes one entry of a hold that is released. What is released is not lost: the event of its end finds no hold.
func (l *life) leave(h *hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.entries--; h.entries == 0 {
		delete(l.holds, h.holder)
		h.cancel()
	}
}

// holdsAt applies the state at a log position: the session had exactly these contenders. Fencing tokens are log positions.
func (l *life) holdsAt(zxid uint64, contenders []contender) {
	l.loseMissing(contenders, func(h *hold) bool { return h.token <= zxid })
}

// holdsOnly applies the answer to a question of this time: the session held exactly these.
func (l *life) holdsOnly(asked time.Duration, contenders []contender) {
	l.loseMissing(contenders, func(h *hold) bool { return h.since < asked })
}

func (l *life) loseMissing(contenders []contender, concerns func(*hold) bool) {
	known := map[string]bool{}
	for _, each := range contenders {
		known[each.Holder] = true
	}
	l.locked(func() {
		for holder, h := range l.holds {
			if !known[holder] && concerns(h) {
				l.loseHolderLocked(holder, &Lost{Reason: "taken_away"})
			}
		}
	})
}

// heldRequest is a release request as it concerns one holder.
type heldRequest struct {
	Holder string
	ReleaseRequest
}

// noteRequests applies the answer to a heartbeat that was sent at this time: these requests are unanswered, and no others.
func (l *life) noteRequests(sent time.Duration, requests []heldRequest) {
	unanswered := map[string]bool{}
	for _, each := range requests {
		unanswered[each.Holder] = true
		l.noteRequest(each)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for holder, h := range l.holds {
		// A request that arrived meanwhile is newer.
		if !unanswered[holder] && h.told < sent {
			h.request = ReleaseRequest{}
		}
	}
}

// noteRequest hands a release request to the holder, once.
func (l *life) noteRequest(news heldRequest) {
	l.locked(func() {
		h := l.holds[news.Holder]
		if h == nil {
			return
		}
		h.told = now()
		if h.request == news.ReleaseRequest {
			return
		}
		h.request = news.ReleaseRequest
		for _, told := range h.onRequest {
			// A slow one must not hold up the heartbeats.
			go told(news.ReleaseRequest)
		}
	})
}

// ended ends the session here if this error says that the cluster has ended it.
func (l *life) ended(err error) {
	if endsSession(err) {
		l.lose(&Lost{Reason: "expired"})
	}
}

// toldWithin is the longest time to wait for the event that explains a loss which an answer has shown without its reason.
const toldWithin = 500 * time.Millisecond

// explain returns the error for the caller of a request about a hold: the loss with its reason, if the hold is lost.
func (l *life) explain(h *hold, err error) error {
	l.ended(err)
	if loss := l.check(); loss != nil {
		return loss
	}
	if Code(err) != "not_holder" {
		return err
	}
	for end := time.Now().Add(toldWithin); ; time.Sleep(10 * time.Millisecond) {
		l.mu.Lock()
		loss, followed := l.gone[h.holder], l.followed
		l.mu.Unlock()
		if loss != nil {
			return loss
		}
		if !followed || time.Now().After(end) {
			return &Lost{Reason: "taken_away"}
		}
	}
}
