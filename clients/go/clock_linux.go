package lockgate

import (
	"syscall"
	"time"
	"unsafe"
)

// clockBoottime is CLOCK_BOOTTIME, which goes on while the machine is suspended.
const clockBoottime = 7

// now returns the time since boot, suspended time included.
func now() time.Duration {
	var ts syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		panic("lockgate: CLOCK_BOOTTIME cannot be read: " + errno.Error())
	}
	return time.Duration(ts.Nano())
}
