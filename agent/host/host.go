// Package host reads the properties and the usage of this machine.
package host

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Info returns the properties that do not change while the machine runs.
func Info() (corev1.NodeSystemInfo, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return corev1.NodeSystemInfo{}, fmt.Errorf("uname: %w", err)
	}
	boot, err := BootID()
	if err != nil {
		return corev1.NodeSystemInfo{}, err
	}
	info := corev1.NodeSystemInfo{
		MachineID:       firstLine("/etc/machine-id", "/var/lib/dbus/machine-id"),
		SystemUUID:      strings.ToLower(firstLine("/sys/class/dmi/id/product_uuid", "/etc/machine-id")),
		BootID:          boot,
		KernelVersion:   unix.ByteSliceToString(u.Release[:]),
		OSImage:         osImage(),
		OperatingSystem: runtime.GOOS,
		Architecture:    runtime.GOARCH,
	}
	if used, err := ReadUsage(); err == nil && used.SwapUsed+used.SwapFree > 0 {
		info.Swap = &corev1.NodeSwapStatus{Capacity: new(int64(used.SwapUsed + used.SwapFree))}
	}
	return info, nil
}

// BootID returns the ID of this boot of the machine.
func BootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id)), err
}

// firstLine returns the first line of the first existing file.
func firstLine(paths ...string) string {
	for _, p := range paths {
		if b, err := os.ReadFile(p); err == nil {
			line, _, _ := strings.Cut(string(b), "\n")
			return strings.TrimSpace(line)
		}
	}
	return ""
}

func osImage() string {
	b, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "Linux"
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			if s, err := strconv.Unquote(value); err == nil {
				return s
			}
			return value
		}
	}
	return "Linux"
}

// Capacity returns the capacity of the node: CPUs, memory, huge pages, the disk that contains dataDir, and pods.
func Capacity(dataDir string, maxPods int) (corev1.ResourceList, error) {
	memory, err := Memory()
	if err != nil {
		return nil, err
	}
	disk, err := Disk(dataDir)
	if err != nil {
		return nil, err
	}
	list := corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(memory.Total, resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(disk.Total, resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(int64(maxPods), resource.DecimalSI),
	}
	for size, n := range HugePages("/sys/kernel/mm/hugepages") {
		list[HugePage(size)] = *resource.NewQuantity(size*n, resource.BinarySI)
	}
	return list, nil
}

// HugePages returns the number of huge pages of each size in bytes, from a folder such as
// /sys/kernel/mm/hugepages.
func HugePages(dir string) map[int64]int64 {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	out := map[int64]int64{}
	for _, e := range entries {
		kib, ok := strings.CutPrefix(e.Name(), "hugepages-")
		size, err := strconv.ParseInt(strings.TrimSuffix(kib, "kB"), 10, 64)
		if !ok || err != nil {
			continue
		}
		n, err := strconv.ParseInt(firstLine(filepath.Join(dir, e.Name(), "nr_hugepages")), 10, 64)
		if err == nil {
			out[size<<10] = n
		}
	}
	return out
}

// HugePage returns the resource name of huge pages of that size in bytes.
func HugePage(size int64) corev1.ResourceName {
	return corev1.ResourceName(corev1.ResourceHugePagesPrefix + resource.NewQuantity(size, resource.BinarySI).String())
}

// Amount is the total and the free part of a resource.
type Amount struct{ Total, Free int64 }

// Memory returns the machine's memory in bytes; Free is MemAvailable.
func Memory() (Amount, error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return Amount{}, err
	}
	mem, err := proc.Meminfo()
	if err != nil {
		return Amount{}, fmt.Errorf("meminfo: %w", err)
	}
	return Amount{int64(bytes(mem.MemTotalBytes)), int64(bytes(mem.MemAvailableBytes))}, nil
}

// Disk returns the bytes of the file system that contains dir.
func Disk(dir string) (Amount, error) {
	st, err := statfs(dir)
	size := int64(st.Bsize) //nolint:unconvert // it has 32 bits on a 32-bit machine
	return Amount{int64(st.Blocks) * size, int64(st.Bavail) * size}, err
}

// Inodes returns the inodes of the file system that contains dir.
func Inodes(dir string) (Amount, error) {
	st, err := statfs(dir)
	return Amount{int64(st.Files), int64(st.Ffree)}, err
}

// statfs returns the statistics of the file system of dir, or of its nearest existing parent.
func statfs(dir string) (unix.Statfs_t, error) {
	var st unix.Statfs_t
	for {
		err := unix.Statfs(dir, &st)
		if up := filepath.Dir(dir); err == unix.ENOENT && up != dir {
			dir = up
			continue
		}
		return st, os.NewSyscallError("statfs", err)
	}
}

// PIDs returns the process IDs of the kernel.
func PIDs() (Amount, error) {
	limit, err := strconv.ParseInt(firstLine("/proc/sys/kernel/pid_max"), 10, 64)
	if err != nil {
		return Amount{}, fmt.Errorf("pid_max: %w", err)
	}
	var si unix.Sysinfo_t
	if err := unix.Sysinfo(&si); err != nil {
		return Amount{}, fmt.Errorf("sysinfo: %w", err)
	}
	return Amount{limit, limit - int64(si.Procs)}, nil
}

// Networks returns the addresses of the node's interfaces with their networks.
func Networks() []netip.Prefix {
	addrs, _ := net.InterfaceAddrs()
	var out []netip.Prefix
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p)
		}
	}
	return out
}
