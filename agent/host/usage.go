package host

import (
	"fmt"
	"os"

	"github.com/prometheus/procfs"
)

// Usage is the usage of the whole machine.
type Usage struct {
	CPU        uint64 // ns since boot, sum of all CPUs, without idle time
	Memory     uint64 // bytes, with the page cache
	WorkingSet uint64 // bytes that the kernel cannot reclaim
	Available  uint64
	RSS        uint64
	SwapUsed   uint64
	SwapFree   uint64
	Booted     uint64 // boot time in seconds since 1970
}

// ReadUsage reads the machine's usage.
func ReadUsage() (Usage, error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return Usage{}, err
	}
	stat, err := proc.Stat()
	if err != nil {
		return Usage{}, fmt.Errorf("stat: %w", err)
	}
	mem, err := proc.Meminfo()
	if err != nil {
		return Usage{}, fmt.Errorf("meminfo: %w", err)
	}
	c := stat.CPUTotal // guests are part of user
	busy := c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal
	total, available := bytes(mem.MemTotalBytes), bytes(mem.MemAvailableBytes)
	return Usage{
		CPU: uint64(busy * 1e9), Memory: total - min(total, bytes(mem.MemFreeBytes)),
		WorkingSet: total - min(total, available), Available: available, RSS: bytes(mem.AnonPagesBytes),
		SwapUsed: bytes(mem.SwapTotalBytes) - min(bytes(mem.SwapTotalBytes), bytes(mem.SwapFreeBytes)),
		SwapFree: bytes(mem.SwapFreeBytes),
		Booted:   stat.BootTime,
	}, nil
}

func bytes(n *uint64) uint64 {
	if n == nil {
		return 0
	}
	return *n
}

// Traffic returns the sums of the bytes that the machine's network interfaces have received and sent: of those with a
// device or, if there are none as in a container, of eth0. Virtual ones carry the same bytes again.
func Traffic() (received, sent uint64) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, 0
	}
	lines, err := proc.NetDev()
	if err != nil {
		return 0, 0
	}
	devices := false
	for name, l := range lines {
		if _, err := os.Stat("/sys/class/net/" + name + "/device"); err == nil {
			devices = true
			received, sent = received+l.RxBytes, sent+l.TxBytes
		}
	}
	if eth0, ok := lines["eth0"]; ok && !devices {
		return eth0.RxBytes, eth0.TxBytes
	}
	return received, sent
}
