package host

import (
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// userHZ is how many ticks a second the kernel counts a process' start time in.
const userHZ = 100

// SinceExec is how long ago this process began, to the kernel's 10 ms; 0 where
// the kernel does not tell.
func SinceExec() time.Duration {
	var now unix.Timespec
	self, err := procfs.Self()
	if err != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return 0
	}
	stat, err := self.Stat()
	if err != nil {
		return 0
	}
	return time.Duration(now.Nano()) - time.Duration(stat.Starttime)*time.Second/userHZ
}
