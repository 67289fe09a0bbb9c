package frugal

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Memory returns how many bytes this process can use: the machine's memory, or less if a cgroup limits it.
func Memory() uint64 {
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
	if proc, err := procfs.NewDefaultFS(); err == nil {
		if mem, err := proc.Meminfo(); err == nil && mem.MemAvailableBytes != nil {
			free = *mem.MemAvailableBytes
		}
	}
	return least(cgroups(), cgroup.free, free)
}

// least is the smallest of what of returns for the groups; none if there is nothing.
func least(groups []cgroup, of func(cgroup) (uint64, bool), none uint64) uint64 {
	for _, g := range groups {
		if n, ok := of(g); ok {
			none = min(none, n)
		}
	}
	return none
}

// cgroup is one that accounts for this process' memory, or one above it.
type cgroup struct {
	dir    string
	second bool // version 2
}

func cgroups() (all []cgroup) {
	self, err := procfs.Self()
	if err != nil {
		return nil
	}
	groups, _ := self.Cgroups() // none: no limit
	for _, g := range groups {
		switch {
		case g.HierarchyID == 0:
			all = append(all, upwards("/sys/fs/cgroup", g.Path, true)...)
		case slices.Contains(g.Controllers, "memory"):
			all = append(all, upwards("/sys/fs/cgroup/memory", g.Path, false)...)
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

// limit is false without one, which version 1 shows as the largest number of whole pages.
func (g cgroup) limit() (uint64, bool) {
	n, ok := g.number("memory.limit_in_bytes", "memory.max")
	return n, ok && n < noLimit
}

// noLimit is more memory than any machine has.
const noLimit = 1 << 60

// free is what is left of the limit; false without one. Pages of files that were not used lately count as free.
func (g cgroup) free() (uint64, bool) {
	limit, limited := g.limit()
	if !limited { // what follows takes the kernel longer
		return 0, false
	}
	used, known := g.number("memory.usage_in_bytes", "memory.current")
	if !known {
		return 0, false
	}
	used -= min(used, g.idle())
	return limit - min(limit, used), true
}

// idle is the size of the pages of files that were not used lately.
func (g cgroup) idle() uint64 {
	label := "\ntotal_inactive_file "
	if g.second {
		label = "\ninactive_file "
	}
	text, _ := os.ReadFile(filepath.Join(g.dir, "memory.stat"))
	_, rest, _ := strings.Cut(string(text), label)
	line, _, _ := strings.Cut(rest, "\n")
	n, _ := strconv.ParseUint(line, 10, 64) // 0: unknown
	return n
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
