package frugal

import (
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
	self, err := procfs.Self()
	if err != nil {
		return total
	}
	groups, _ := self.Cgroups() // none: no limit
	for _, g := range groups {
		switch {
		case g.HierarchyID == 0:
			total = min(total, limit("/sys/fs/cgroup", g.Path, "memory.max", total))
		case slices.Contains(g.Controllers, "memory"):
			total = min(total, limit("/sys/fs/cgroup/memory", g.Path, "memory.limit_in_bytes", total))
		}
	}
	return total
}

// limit returns the smallest limit in the files of a cgroup and those above it; none if there is no limit.
func limit(mount, path, file string, none uint64) uint64 {
	least := none
	for dir := filepath.Join(mount, path); strings.HasPrefix(dir, mount); dir = filepath.Dir(dir) {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			continue
		}
		if n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil {
			least = min(least, n)
		}
	}
	return least
}
