package check

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"monopod/agent/host"
	"monopod/agent/runtime/containerd"
	"monopod/apiserver/kit/guard"
	"monopod/apiserver/kit/local"
)

// Config contains the configuration with which monopod would be started.
type Config struct {
	DataDir string
	Runtime string // --runtime
	Options containerd.Options
	Listen  map[string]string
	Clock   Clock
}

// Collect reads and tests the features that monopod needs. It removes everything that it creates for a test,
// but leaves the machine set up for pods.
func Collect(ctx context.Context, cfg Config) Facts {
	f := Facts{Containers: cfg.Runtime == "containerd", DataDir: cfg.DataDir, UID: os.Geteuid(), Clock: cfg.Clock}
	if info, err := host.Info(); err == nil {
		f.Kernel = info.KernelVersion
	}
	var state unix.Timex
	_, err := unix.Adjtimex(&state)
	f.Clock.Synchronized = err == nil && state.Status&unix.STA_UNSYNC == 0 // for example by NTP
	f.Memory, f.MemoryErr = host.Memory()
	dir := existing(cfg.DataDir)
	f.Disk, f.DiskErr = host.Disk(dir)
	if f.DiskErr == nil {
		f.Inodes, f.DiskErr = host.Inodes(dir)
	}
	if f.Containers {
		f.containers(ctx, cfg, dir)
	}
	f.Ports = ports(ctx, cfg)
	return f
}

// containers adds the facts that matter for pods on containerd.
func (f *Facts) containers(ctx context.Context, cfg Config, dir string) {
	f.Privileged = containerd.Privileged()
	if f.Privileged {
		f.SetUp = containerd.SetUp() // as at a start
	}
	f.Cgroups = cgroups("/")
	if f.Privileged {
		f.Overlay = containerd.Overlay(dir)
		f.Bridge, f.Nftables = tryNetwork()
		f.Users = containerd.UserNamespaces(dir)
	}
	_, err := os.Stat("/proc/sys/kernel/seccomp/actions_avail")
	f.Seccomp = err == nil
	f.Stalls = host.ReadStalls().Memory != nil
	if used, err := host.ReadUsage(); err == nil {
		f.Swap = used.SwapUsed + used.SwapFree
	}
	f.Socket = cfg.Options.Socket()
	if f.Child = f.Socket == ""; !f.Child {
		f.SocketError = answers(ctx, f.Socket)
	}
	if f.Child && cfg.Options.UseBundle() {
		f.Bundled = true
		return
	}
	f.Hosts = host.Hosts("/")
	f.Containerd, f.Runc = program(ctx, "containerd"), program(ctx, "runc")
	f.CrunErr = cfg.Options.CheckCrun(ctx)
}

// existing returns dir, or its nearest parent that exists.
func existing(dir string) string {
	for {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// cgroups returns the version and the controllers of the cgroups of the machine below root.
func cgroups(root string) Cgroups {
	mount := filepath.Join(root, "sys/fs/cgroup")
	if text, err := os.ReadFile(filepath.Join(mount, "cgroup.controllers")); err == nil {
		return Cgroups{2, strings.Fields(string(text))}
	}
	var c Cgroups
	for _, name := range append(slices.Clone(limiting), "cpuset", "hugetlb") {
		if _, err := os.Stat(filepath.Join(mount, name, "cgroup.procs")); err == nil {
			c.Version, c.Controllers = 1, append(c.Controllers, name)
		}
	}
	if text, err := os.ReadFile(filepath.Join(mount, "unified/cgroup.controllers")); err == nil {
		c.Controllers = append(c.Controllers, strings.Fields(string(text))...)
	}
	return c
}

// ports tries to listen on each address.
func ports(ctx context.Context, cfg Config) (all []Port) {
	_, err := local.At(cfg.DataDir).Read(ctx, "/livez")
	runs := !local.Stopped(err) && err == nil
	for _, flag := range []string{"listen", "kubelet-listen"} {
		address := cfg.Listen[flag]
		if address == "" {
			continue
		}
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err == nil {
			_ = l.Close() // nobody has connected
		}
		all = append(all, Port{Flag: flag, Address: address, Err: reason(err), Ours: runs && errors.Is(err, unix.EADDRINUSE)})
	}
	return all
}

// reason returns the kernel's error alone, without the context that package net adds.
func reason(err error) error {
	if errno := unix.Errno(0); errors.As(err, &errno) {
		return errno
	}
	return err
}

// answers returns an error if no process accepts connections at a Unix socket.
func answers(ctx context.Context, socket string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return reason(err)
	}
	return conn.Close()
}

// program returns the version of an installed program.
func program(ctx context.Context, name string) Program {
	path, err := exec.LookPath(name)
	if err != nil {
		return Program{Err: errors.New(name + " is not installed")}
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return Program{Err: errors.New(path + " --version: " + err.Error())}
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return Program{Version: strings.TrimSpace(line)}
}

// tryNetwork creates the parts of a pod network in a new network namespace, which ends with its thread.
func tryNetwork() (bridge, nftables error) {
	err := <-guard.Spawn(func() error {
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			bridge, nftables = err, err
			return nil
		}
		bridge, nftables = tryLinks(), tryTable()
		return nil
	})
	if err != nil {
		return err, err
	}
	return bridge, nftables
}
