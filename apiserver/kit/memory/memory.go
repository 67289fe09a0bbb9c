// Package memory reports how much memory this process can use, and gives the pages of its program back (Release).
package memory

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// share is the divisor of Limit that gives Go's soft memory limit: containerd, its shims and the pods of a small machine
// need the rest.
const share = 3

// SetSoftLimit sets Go's soft memory limit, unless the environment does (GOMEMLIMIT).
func SetSoftLimit() {
	if limit := Limit() / share; limit > 0 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(int64(limit))
	}
}

// Limit returns how many bytes this process can use: the machine's memory, or less if a cgroup limits it.
func Limit() uint64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	total := uint64(info.Totalram) * uint64(info.Unit) //nolint:unconvert // 32 bits wide on 32-bit machines
	return least(cgroups(), cgroup.limit, total)
}

// Free returns how many bytes this process and those that it starts can use in addition to what is in use: what the
// machine has available, or less if a cgroup limits it. Without an answer of the kernel it is the largest number.
func Free() uint64 {
	free := uint64(math.MaxUint64)
	text, _ := os.ReadFile("/proc/meminfo")
	if kb, ok := value(string(text), "\nMemAvailable:"); ok {
		free = kb << 10
	}
	return least(cgroups(), cgroup.free, free)
}

// value returns the number after the label.
func value(text, label string) (uint64, bool) {
	_, rest, _ := strings.Cut(text, label)
	line, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseUint(strings.Trim(line, " kB"), 10, 64)
	return n, err == nil
}

// least returns the smallest number that of returns for a group; none if of has no number for any.
func least(groups []cgroup, of func(cgroup) (uint64, bool), none uint64) uint64 {
	for _, g := range groups {
		if n, ok := of(g); ok {
			none = min(none, n)
		}
	}
	return none
}

// cgroup is a cgroup that accounts for this process' memory, or a parent of it.
type cgroup struct {
	dir    string
	second bool // version 2
}

func cgroups() (all []cgroup) {
	text, _ := os.ReadFile("/proc/self/cgroup")     // none: no limit
	for line := range strings.Lines(string(text)) { // its number in version 1, its controllers, its path
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		switch {
		case len(parts) < 3:
		case parts[0] == "0":
			all = append(all, upwards("/sys/fs/cgroup", parts[2], true)...)
		case slices.Contains(strings.Split(parts[1], ","), "memory"):
			all = append(all, upwards("/sys/fs/cgroup/memory", parts[2], false)...)
		}
	}
	return all
}

func upwards(mount, path string, second bool) (all []cgroup) {
	for dir := filepath.Join(mount, path); strings.HasPrefix(dir, mount); dir = filepath.Dir(dir) {
		all = append(all, cgroup{dir, second})
	}
	return all
}

// limit returns the memory limit; false if there is none, which version 1 shows as the largest number of whole pages.
func (g cgroup) limit() (uint64, bool) {
	n, ok := g.number("memory.limit_in_bytes", "memory.max")
	return n, ok && n < noLimit
}

// noLimit is more memory than any machine has.
const noLimit = 1 << 60

// free returns the rest of the limit; false if there is none. Pages of files that were not used lately count as free.
func (g cgroup) free() (uint64, bool) {
	limit, limited := g.limit()
	if !limited { // what follows takes the kernel longer
		return 0, false
	}
	used, known := g.number("memory.usage_in_bytes", "memory.current")
	if !known {
		return 0, false
	}
	label := "\ntotal_inactive_file "
	if g.second {
		label = "\ninactive_file "
	}
	text, _ := os.ReadFile(filepath.Join(g.dir, "memory.stat"))
	idle, _ := value(string(text), label) // 0: unknown
	used -= min(used, idle)
	return limit - min(limit, used), true
}

// number reads the file of the cgroup's version; false if it has no number.
func (g cgroup) number(first, second string) (uint64, bool) {
	file := first
	if g.second {
		file = second
	}
	text, err := os.ReadFile(filepath.Join(g.dir, file))
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}
