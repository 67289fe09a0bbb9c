package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Usage contains the CPU time of a cgroup since its creation, its page faults, and its current memory in bytes.
type Usage struct {
	CPU        uint64 // ns
	Memory     uint64 // with the page cache
	WorkingSet uint64 // Memory without inactive file pages, which the kernel can drop at once
	RSS        uint64 // anonymous memory
	PageFaults uint64
	MajorFault uint64
	Processes  uint64
	Process    int // the ID of one process; 0: there is none
}

// Usage reads the pod's cgroup.
func (m *Manager) Usage(pod *corev1.Pod) (Usage, error) {
	parent := m.Parent(pod)
	if m.v2 {
		return usageV2(filepath.Join(m.Mount, parent))
	}
	return m.usageV1(parent)
}

func usageV2(dir string) (Usage, error) {
	var u Usage
	cpu, err1 := pairs(filepath.Join(dir, "cpu.stat"))
	stat, err2 := pairs(filepath.Join(dir, "memory.stat"))
	memory, err3 := number(filepath.Join(dir, "memory.current"))
	if err := errors.Join(err1, err2, err3); err != nil {
		return u, err
	}
	u.CPU, u.Memory = cpu["usage_usec"]*1000, memory
	u.WorkingSet, u.RSS = subtract(memory, stat["inactive_file"]), stat["anon"]
	u.PageFaults, u.MajorFault = stat["pgfault"], stat["pgmajfault"]
	u.Processes, _ = number(filepath.Join(dir, "pids.current")) // 0 if the controller is disabled
	u.Process = process(dir)
	return u, nil
}

// usageV1 reads each controller's own hierarchy.
func (m *Manager) usageV1(parent string) (Usage, error) {
	var u Usage
	dir := filepath.Join(m.Mount, "memory", parent)
	cpu, err1 := number(filepath.Join(m.Mount, "cpuacct", parent, "cpuacct.usage"))
	stat, err2 := pairs(filepath.Join(dir, "memory.stat"))
	memory, err3 := number(filepath.Join(dir, "memory.usage_in_bytes"))
	if err := errors.Join(err1, err2, err3); err != nil {
		return u, err
	}
	u.CPU, u.Memory = cpu, memory
	u.WorkingSet, u.RSS = subtract(memory, stat["total_inactive_file"]), stat["total_rss"]
	u.PageFaults, u.MajorFault = stat["total_pgfault"], stat["total_pgmajfault"]
	u.Processes, _ = number(filepath.Join(m.Mount, "pids", parent, "pids.current")) // 0 if the controller is missing
	u.Process = process(dir)
	return u, nil
}

func subtract(all, part uint64) uint64 { return all - min(all, part) }

// Process returns the ID of a process in the container's cgroup at path; 0: there is none.
func (m *Manager) Process(path string) int {
	if !m.v2 {
		path = filepath.Join("memory", path)
	}
	return firstProcess(filepath.Join(m.Mount, path, "cgroup.procs"))
}

// process returns the ID of a process in a container's cgroup below the pod's cgroup dir; 0: there is none.
func process(dir string) int {
	lists, _ := filepath.Glob(filepath.Join(dir, "*", "cgroup.procs")) // fails only for an invalid pattern
	for _, list := range lists {
		if pid := firstProcess(list); pid != 0 {
			return pid
		}
	}
	return 0
}

// firstProcess returns the first process of a list; 0: it is empty.
func firstProcess(list string) int {
	text, _ := os.ReadFile(list) // the cgroup may have been removed
	first, _, _ := strings.Cut(string(text), "\n")
	pid, _ := strconv.Atoi(first)
	return pid
}

func number(path string) (uint64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return n, nil
}

// pairs parses the lines of a file with a name and a number.
func pairs(path string) (map[string]uint64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	out := map[string]uint64{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseUint(value, 10, 64); err == nil {
			out[name] = n
		}
	}
	return out, nil
}

// OOMKilled reports whether a process of a container was OOM-killed, according to the counter of its cgroup. The cgroup
// is removed soon after the container's end, so false is not certain. parent is the cgroup parent in the CRI config.
func OOMKilled(mount, parent, container string) bool {
	folder := containerFolder(parent, container)
	for _, file := range []string{
		filepath.Join(mount, "memory", parent, folder, "memory.oom_control"), // v1
		filepath.Join(mount, parent, folder, "memory.events"),
	} {
		if counts, err := pairs(file); err == nil && counts["oom_kill"] > 0 {
			return true
		}
	}
	return false
}
