//go:build !linux

package lockgate

import (
	"sync"
	"time"
)

var clock = struct {
	mu      sync.Mutex
	started time.Time
	ahead   time.Duration
}{started: time.Now()}

// now returns the time since the start of the program. Go's monotonic clock may stop while the machine is suspended, so the time of day
// counts too: its largest lead so far is added. A clock that is set forward may therefore end a session early.
func now() time.Duration {
	clock.mu.Lock()
	defer clock.mu.Unlock()
	at := time.Now()
	monotonic := at.Sub(clock.started)
	if lead := at.Round(0).Sub(clock.started.Round(0)) - monotonic; lead > clock.ahead {
		clock.ahead = lead
	}
	return monotonic + clock.ahead
}
