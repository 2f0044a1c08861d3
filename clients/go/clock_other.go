//go:build !linux

package lockgate

import "time"

var started = time.Now()

// now returns the time since the start of the program on Go's monotonic clock, which may stop while the machine is suspended.
func now() time.Duration { return time.Since(started) }
