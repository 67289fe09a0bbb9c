package host

import (
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// userHZ is the kernel's unit of a process' start time, in ticks per second.
const userHZ = 100

// SinceExec returns the age of this process, to 10 ms; 0 if it is not known.
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
