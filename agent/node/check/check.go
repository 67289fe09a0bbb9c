// Package check checks whether a machine can run monopod. Collect reads and tests the features of the machine that
// monopod needs; Of turns these facts into results with remedies.
package check

import (
	"cmp"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/host"
	"monopod/agent/runtime"
	"monopod/apiserver/kit/words"
)

// Verdict is the result of a check.
type Verdict string

// The verdicts, from good to bad.
const (
	OK      Verdict = "ok"
	Warning Verdict = "warning" // monopod runs with a limitation
	Missing Verdict = "missing" // monopod cannot run, or cannot run pods
)

// Result is one line of a report.
type Result struct {
	Name    string  `json:"name"`
	Verdict Verdict `json:"verdict"`
	Found   string  `json:"found"`
	Remedy  string  `json:"remedy,omitempty"`
}

// Facts are the results of Collect. An error is nil if the feature works.
type Facts struct {
	Containers  bool // pods run on containerd, not on the fake runtime
	Child       bool // monopod starts containerd as its child
	DataDir     string
	UID         int
	Privileged  bool // has CAP_SYS_ADMIN and CAP_NET_ADMIN
	Kernel      string
	Cgroups     Cgroups
	SetUp       error // of what a bare machine leaves to its programs
	Overlay     error
	Bridge      error // a bridge and a pair of virtual links
	Nftables    error // a table with a NAT chain
	Seccomp     bool
	Users       error  // of user namespaces with id-mapped mounts
	Stalls      bool   // the kernel measures how long processes wait (PSI)
	Swap        uint64 // bytes
	Hosts       error  // why there is no /etc/hosts
	Clock       Clock
	Disk        host.Amount
	Inodes      host.Amount
	DiskErr     error // of Disk and Inodes
	Memory      host.Amount
	MemoryErr   error
	Ports       []Port
	Containerd  Program
	Runc        Program
	CrunErr     error  // why crun is not the OCI runtime; nil: it is
	Bundled     bool   // containerd and runc are those inside this program
	Socket      string // of the containerd that --containerd names; empty: monopod starts one
	SocketError error  // of Socket
}

// Cgroups are the machine's control groups.
type Cgroups struct {
	Version     int      // 2 or 1; 0: none are mounted
	Controllers []string // those that can be used
}

// Clock is the machine's clock.
type Clock struct {
	Now          time.Time
	Built        time.Time // build time of the program; zero: unknown
	Synchronized bool
}

// Port is an address that monopod listens on.
type Port struct {
	Flag, Address string
	Ours          bool // the monopod that runs on the data folder listens on it
	Err           error
}

// Program is an installed program.
type Program struct {
	Version string
	Err     error
}

// Of returns one result for each fact that matters for this configuration.
func Of(f Facts) []Result {
	results := []Result{kernel(f), f.memory(), f.space(), f.clock()}
	for _, p := range f.Ports {
		results = append(results, p.judge())
	}
	if !f.Containers {
		return results
	}
	results = append(results, f.user())
	if f.Privileged { // the tests of these facts need privileges
		results = append(results, f.Cgroups.judge(),
			either(f.SetUp == nil, good("setup", "kernel modules, control groups and the loopback device are there"),
				bad(Warning, "setup", fmt.Sprint(f.SetUp), "use a kernel with these modules, and with cgroup v2")),
			either(f.Overlay == nil, good("overlay", "works on %s", f.DataDir), bad(Warning, "overlay",
				fmt.Sprintf("cannot be mounted on %s (%v): each container copies its image", f.DataDir, f.Overlay),
				"modprobe overlay; use a data folder on ext4 or xfs (--data-dir)")),
			either(f.Bridge == nil, good("network", "bridges and virtual links work"), bad(Missing, "network",
				fmt.Sprintf("no bridges or virtual links (%v): pods have no network", f.Bridge),
				"modprobe bridge veth; use a kernel with these modules")),
			either(f.Nftables == nil, good("nftables", "tables with NAT work"), bad(Warning, "nftables",
				fmt.Sprintf("not usable (%v): no Services, NetworkPolicies and host ports", f.Nftables),
				"modprobe nf_tables nft_chain_nat; use a kernel with these modules")),
			either(f.Seccomp, good("seccomp", "works"), bad(Warning, "seccomp",
				"the kernel has none: profiles of pods are refused", "use a kernel with CONFIG_SECCOMP_FILTER")),
			either(f.Users == nil, good("usernamespaces", "work: root in a pod with hostUsers: false is nobody outside"),
				bad(Warning, "usernamespaces", fmt.Sprintf("not usable on %s (%v): pods with hostUsers: false do not start",
					f.DataDir, f.Users), "use Linux 6.3 or later, and a data folder on ext4, xfs or btrfs (--data-dir)")),
			either(f.Stalls, good("pressure", "the kernel measures how long processes wait (PSI)%s", f.ofContainers()),
				bad(Warning, "pressure", "the kernel does not measure how long processes wait (PSI): memory pressure is found "+
					"up to ten seconds later", "add psi=1 to the kernel's command line and reboot, or use a kernel with CONFIG_PSI")),
			f.swap())
	}
	if f.Bundled {
		return append(results, good("containerd", "the one inside this program, with its shim and runc"),
			good("imagevolumes", "images can be mounted as volumes"))
	}
	if f.Privileged {
		results = append(results, either(f.Hosts == nil, good("hosts", "/etc/hosts exists"), bad(Warning, "hosts",
			"there is no /etc/hosts, which containerd copies for each pod: monopod writes one when it starts",
			"echo 127.0.0.1 localhost > /etc/hosts")))
	}
	results = append(results, f.containerd(), f.runc())
	if f.Child && f.Containerd.Err == nil {
		results = append(results, f.images())
	}
	if f.Child && f.Privileged {
		results = append(results, f.crun())
	}
	return results
}

// Worst returns the worst verdict.
func Worst(results []Result) Verdict {
	order := []Verdict{OK, Warning, Missing}
	worst := slices.MaxFunc(results, func(a, b Result) int {
		return cmp.Compare(slices.Index(order, a.Verdict), slices.Index(order, b.Verdict))
	})
	return worst.Verdict
}

func good(name, format string, args ...any) Result {
	return Result{Name: name, Verdict: OK, Found: fmt.Sprintf(format, args...)}
}

func bad(v Verdict, name, found, remedy string) Result {
	return Result{Name: name, Verdict: v, Found: found, Remedy: remedy}
}

func either(works bool, good, bad Result) Result {
	if works {
		return good
	}
	return bad
}

// The oldest kernel that Kubernetes supports: kubeadm refuses older ones.
const oldestMajor, oldestMinor = 4, 19

func kernel(f Facts) Result {
	var major, minor int
	if _, err := fmt.Sscanf(f.Kernel, "%d.%d", &major, &minor); err != nil || major < oldestMajor ||
		major == oldestMajor && minor < oldestMinor {
		return bad(Warning, "kernel", "Linux "+f.Kernel+", Kubernetes supports 4.19 and later",
			"upgrade the operating system")
	}
	return good("kernel", "Linux %s", f.Kernel)
}

func (f Facts) user() Result {
	switch {
	case f.UID != 0:
		return bad(Missing, "user", fmt.Sprintf("user %d cannot run containers", f.UID),
			"use sudo, or --runtime=fake, which keeps pods in memory")
	case !f.Privileged:
		return bad(Missing, "user", "root without the capabilities CAP_SYS_ADMIN and CAP_NET_ADMIN",
			"in a container, run it with --privileged")
	}
	return good("user", "root")
}

func (f Facts) ofContainers() string {
	if f.Cgroups.Version == 2 {
		return ", of each container, too"
	}
	return ", but not of each container: cgroup v1 cannot"
}

func (f Facts) swap() Result {
	switch {
	case f.Swap == 0:
		return good("swap", "the machine has none")
	case f.Cgroups.Version != 2:
		return bad(Warning, "swap", words.Bytes(int64(f.Swap))+", and cgroup v1 cannot limit how much of it containers "+
			"without a limit of memory use", "boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1), or swapoff -a")
	}
	return good("swap", "%s, which containers use only with --memory-swap-behavior=LimitedSwap",
		words.Bytes(int64(f.Swap)))
}

// limiting are the cgroup controllers that enforce the limits of pods.
var limiting = []string{"cpu", "memory", "pids"}

func (c Cgroups) judge() Result {
	if c.Version == 0 {
		return bad(Missing, "cgroups", "none are mounted at /sys/fs/cgroup", "mount -t cgroup2 none /sys/fs/cgroup")
	}
	var lacking []string
	for _, name := range limiting {
		if !slices.Contains(c.Controllers, name) {
			lacking = append(lacking, name)
		}
	}
	found := fmt.Sprintf("version %d", c.Version)
	switch {
	case slices.Contains(lacking, "memory"):
		return bad(Warning, "cgroups", found+" without "+strings.Join(lacking, ", ")+": limits of memory have no effect",
			"add cgroup_enable=memory cgroup_memory=1 to the kernel's command line (/boot/firmware/cmdline.txt) and reboot")
	case len(lacking) > 0:
		return bad(Warning, "cgroups", found+" without "+strings.Join(lacking, ", ")+": these limits have no effect",
			"use a kernel with these controllers")
	}
	return good("cgroups", "%s, with %s", found, strings.Join(limiting, ", "))
}

func (f Facts) clock() Result {
	now := f.Clock.Now.UTC().Format("2006-01-02 15:04 MST")
	switch {
	case f.Clock.Now.Before(f.Clock.Built):
		return bad(Warning, "clock", now+", which is before this program was made: registries' certificates are refused",
			"set the clock: timedatectl set-time, or a time server")
	case !f.Clock.Synchronized:
		return bad(Warning, "clock", now+", not synchronized",
			"timedatectl set-ntp true, or ignore it on a machine without a network")
	}
	return good("clock", "%s, synchronized", now)
}

const (
	evictedBelow = 10        // percent of disk and inodes: the default thresholds of --eviction-hard
	minDisk      = 100 << 20 // for the state
	minMemory    = 150 << 20 // --eviction-hard evicts pods below 100 MiB
)

func (f Facts) space() Result {
	if f.DiskErr != nil {
		return bad(Missing, "disk", f.DiskErr.Error(), "choose a data folder on a disk (--data-dir)")
	}
	found := fmt.Sprintf("%s of %s free on %s", words.Bytes(f.Disk.Free), words.Bytes(f.Disk.Total), f.DataDir)
	const remedy = "remove files, or choose another disk (--data-dir)"
	switch {
	case f.Disk.Free < minDisk:
		return bad(Missing, "disk", found, remedy)
	case f.Disk.Free < f.Disk.Total/100*evictedBelow:
		return bad(Warning, "disk", found+": below 10 % pods are evicted", remedy+", or set --eviction-hard")
	case f.Inodes.Free < f.Inodes.Total/100*evictedBelow:
		return bad(Warning, "disk", fmt.Sprintf("%s, but only %d of %d inodes", found, f.Inodes.Free, f.Inodes.Total), remedy)
	}
	return good("disk", "%s", found)
}

func (f Facts) memory() Result {
	if f.MemoryErr != nil {
		return bad(Warning, "memory", f.MemoryErr.Error(), "mount /proc")
	}
	found := fmt.Sprintf("%s of %s available", words.Bytes(f.Memory.Free), words.Bytes(f.Memory.Total))
	if f.Memory.Free < minMemory {
		return bad(Warning, "memory", found+": below 100 MiB pods are evicted", "end other programs, or set --eviction-hard")
	}
	return good("memory", "%s", found)
}

func (p Port) judge() Result {
	switch {
	case p.Ours:
		return good("port", "%s is used by the monopod that runs", p.Address)
	case p.Err != nil:
		return bad(Missing, "port", fmt.Sprintf("cannot listen on %s: %v", p.Address, p.Err),
			fmt.Sprintf("end the program that has it (ss -ltnp), or choose another address (--%s)", p.Flag))
	}
	return good("port", "%s is free", p.Address)
}

const install = "apt-get install containerd runc (or with dnf or apk), or --runtime=fake, which keeps pods in memory"

func (f Facts) containerd() Result {
	switch {
	case f.Socket != "" && f.SocketError == nil:
		return good("containerd", "%s answers, and is used", f.Socket)
	case !f.Child:
		return bad(Missing, "containerd", fmt.Sprintf("%s: %v", f.Socket, f.SocketError),
			"systemctl start containerd, or leave --containerd out")
	case f.Containerd.Err != nil:
		return bad(Missing, "containerd", f.Containerd.Err.Error(), install)
	}
	return good("containerd", "%s, monopod runs its own", f.Containerd.Version)
}

func (f Facts) images() Result {
	mounts := slices.ContainsFunc(strings.Fields(f.Containerd.Version), func(word string) bool {
		return runtime.MountsImages(&cri.VersionResponse{RuntimeName: "containerd", RuntimeVersion: word}) == nil
	})
	return either(mounts, good("imagevolumes", "images can be mounted as volumes"), bad(Warning, "imagevolumes",
		"this containerd cannot mount images, and before 2.0 has no user namespaces: pods with image volumes, or with "+
			"hostUsers: false, do not start", "upgrade it to 2.2 or later, or use the bundled one"))
}

func (f Facts) runc() Result {
	switch {
	case f.Runc.Err != nil && f.Child && f.CrunErr == nil:
		return good("runc", "not installed: crun starts the containers")
	case f.Runc.Err != nil && f.Child:
		return bad(Missing, "runc", f.Runc.Err.Error(), install)
	case f.Runc.Err != nil:
		return bad(Warning, "runc", f.Runc.Err.Error()+": containerd may have another runtime", install)
	}
	return good("runc", "%s", f.Runc.Version)
}

// crun is preferred to runc, which is enough.
func (f Facts) crun() Result {
	switch {
	case errors.Is(f.CrunErr, exec.ErrNotFound):
		return good("crun", "not installed; with it, pods start and end with less CPU and memory than with runc")
	case f.CrunErr != nil:
		return good("crun", "not used: %v", f.CrunErr)
	}
	return good("crun", "it starts the containers, unless --oci-runtime names another program")
}
