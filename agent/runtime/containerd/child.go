// Package containerd finds the containerd of the machine or runs one of Monopod's own:
// Possible checks the machine, Locate decides, Await waits for a given one, and Child
// starts one below the data folder and keeps it running. It supports containerd 1.6 and
// 2.x; package cri talks to it.
package containerd

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"monopod/agent/host"
	"monopod/agent/host/mount"
	"monopod/agent/network/cni"
	"monopod/apiserver/kit/backoff"
	"monopod/apiserver/kit/guard"
	"monopod/apiserver/kit/kernel"
)

const (
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 3 * time.Second
	// stableAfter is how long containerd must run until the backoff of its restarts is reset.
	stableAfter = 10 * time.Second
	// stopTimeout is how long containerd gets between SIGTERM and SIGKILL.
	stopTimeout = 5 * time.Second
)

// Config of a Child.
type Config struct {
	DataDir    string         // of monopod
	Options                   // which containerd, and the program that starts containers
	Executable string         // path of monopod, which is also the CNI plugin; empty: the running one
	MaxPods    int            // of the node, for the size of the pod network; 0: 110
	Admit      cni.Admit      // decides whether a pod gets addresses; nil: always
	Systemd    bool           // the systemd cgroup driver, otherwise cgroupfs
	Pods       []netip.Prefix // the CIDRs of pods; empty: chosen automatically
	// PodRanges returns the CIDRs of pods instead of Pods, once they are known; previous are those of the last start.
	PodRanges func(ctx context.Context, previous []netip.Prefix) ([]netip.Prefix, error)
	Services  []netip.Prefix // the CIDRs of Services
	CNI       bool           // pods have a CNI network of the administrator
	Log       *zap.Logger
	Guard     *guard.Guard // of the goroutine that deletes leases; nil: its panic is only recovered
	Clock     clock.Clock  // nil: the real one
}

// Child is Monopod's own containerd below <data-dir>/containerd, with its own pod
// network. Pods survive it: after a stop or crash of containerd and monopod they keep
// running, and the next start adopts them.
type Child struct {
	config      Config
	layout      layout
	program     string
	snapshotter string
	network     cni.Network // set by prepare
	prepared    chan struct{}
	once        sync.Once // closes prepared
}

// New checks that containerd is installed and creates its folders.
func New(config Config) (*Child, error) {
	dataDir, err := filepath.Abs(config.DataDir)
	if err != nil {
		return nil, err
	}
	c := &Child{config: config, layout: newLayout(dataDir), prepared: make(chan struct{})}
	if c.config.Clock == nil {
		c.config.Clock = clock.RealClock{}
	}
	if c.config.Executable == "" {
		if c.config.Executable, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	if c.program, err = config.program(dataDir); err != nil {
		return nil, err
	}
	for _, dir := range []string{c.layout.root, c.layout.hosts, c.layout.cni, filepath.Dir(c.layout.socket)} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return nil, err
		}
	}
	c.snapshotter, err = chooseSnapshotter(c.layout.dir)
	return c, err
}

// Socket returns the path at which the child listens.
func (c *Child) Socket() string { return c.layout.socket }

// Snapshotter returns the child's snapshotter, for Config.Snapshotter.
func (c *Child) Snapshotter() string { return c.snapshotter }

// StateDir returns the folder of running containers, for Config.StateDir.
func (c *Child) StateDir() string { return c.layout.state }

// Network returns the network of the child's pods, once Run has set it up.
func (c *Child) Network(ctx context.Context) (cni.Network, error) {
	select {
	case <-c.prepared:
		return c.network, nil
	case <-ctx.Done():
		return cni.Network{}, ctx.Err()
	}
}

// Prepared returns the network without waiting; zero: Run has not set it up yet.
func (c *Child) Prepared() cni.Network {
	select {
	case <-c.prepared:
		return c.network
	default:
		return cni.Network{}
	}
}

// Run keeps containerd running until ctx ends. Then it stops containerd, whose pods keep running, and removes the pod
// network if there are no pods. It returns an error only before the first start. When containerd exits later, Run logs
// that and restarts it after 100 ms, doubling up to 3 s.
func (c *Child) Run(ctx context.Context) error {
	if err := c.prepare(ctx); ctx.Err() != nil {
		return nil
	} else if err != nil {
		return fmt.Errorf("prepare containerd: %w", err)
	}
	served := c.serveNetwork(ctx)
	c.supervise(ctx)
	served()
	if err := c.network.RemoveIdle(); err != nil {
		c.config.Log.Warn("failed to remove the pod network", zap.Error(err))
	}
	return nil
}

// serveNetwork serves the CNI plugin until end is called, which may be after ctx ends: a containerd that is stopping
// may still run the plugin. Without the server, the plugin sets up pods by itself.
func (c *Child) serveNetwork(ctx context.Context) (end func()) {
	server, err := c.network.Listen(c.config.Log, c.config.Admit)
	if err != nil {
		c.config.Log.Warn("cannot listen for the network plugin: pods start more slowly", zap.Error(err))
		return func() {}
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	var ended sync.WaitGroup
	c.config.Guard.Go(&ended, "pod network", func() { server.Serve(serving) })
	c.config.Guard.Go(&ended, "routes", func() { c.followRoutes(serving) })
	return func() { stop(); ended.Wait() }
}

// routesDebounce is the time between a change of routes and the adaptation of the pod network: the start of a pod
// changes routes many times.
const routesDebounce = time.Second

// followRoutes adapts the pod network to the host's routes until ctx ends.
func (c *Child) followRoutes(ctx context.Context) {
	for range kernel.WatchNetwork(ctx) {
		if !backoff.Sleep(ctx, c.config.Clock, routesDebounce) {
			continue // until the channel is closed
		}
		if err := c.network.Adapt(); err != nil {
			c.config.Log.Warn("failed to adapt the pod network to the routes of the machine", zap.Error(err))
		}
	}
}

// supervise restarts containerd until ctx ends.
func (c *Child) supervise(ctx context.Context) {
	for retry := (backoff.Retry{First: firstBackoff, Most: lastBackoff}); ; {
		began := c.config.Clock.Now()
		err := c.runReleasingLeases(ctx)
		if ctx.Err() != nil {
			return
		}
		if c.config.Clock.Since(began) > stableAfter {
			retry.Reset()
		}
		pause := retry.Next()
		c.config.Log.Error("containerd ended", zap.Error(err), zap.Duration("startAgainAfter", pause))
		if !backoff.Sleep(ctx, c.config.Clock, pause) {
			return
		}
		if err := errors.Join(c.endOrphanedShims(ctx), c.removeOrphanedNamespaces(), c.network.Reclaim()); err != nil {
			c.config.Log.Warn("failed to clean up partially created containers", zap.Error(err))
		}
	}
}

// prepare prepares the first start: it stops an earlier containerd of this data folder, cleans up what it left, and
// writes the configuration of the network and of containerd.
func (c *Child) prepare(ctx context.Context) error {
	programs, err := c.findPrograms(ctx)
	if err != nil {
		return err
	}
	if err := c.stopLeftover(ctx); err != nil {
		return err
	}
	if err := c.removeStateOfEarlierBoot(); err != nil {
		return err
	}
	if err := errors.Join(c.endOrphanedShims(ctx), c.removeOrphanedNamespaces(), c.replaceWrappers(programs)); err != nil {
		return err
	}
	pods := c.config.Pods
	if c.config.PodRanges != nil {
		if pods, err = c.config.PodRanges(ctx, cni.Previous(c.layout.cni)); err != nil {
			return err
		}
	}
	network, err := cni.Prepare(cni.Config{
		Dir: c.layout.cni, ID: c.layout.id, Executable: c.config.Executable, Pods: c.config.MaxPods,
		Subnets: pods, Services: c.config.Services, Admin: c.config.CNI, Log: c.config.Log,
	})
	if err != nil {
		return err
	}
	c.network = network
	c.once.Do(func() { close(c.prepared) })
	return os.WriteFile(c.layout.config, []byte(c.configFile(programs, network).render()), 0o600)
}

// shimName is the name of containerd's shim: the parent process of a pod's containers.
const shimName = "containerd-shim-runc-v2"

// programs are the programs that containerd uses.
type programs struct {
	version     programVersion // of containerd
	ociRuntimes []ociRuntime   // the default one first
	shim        string         // absolute path; empty: containerd looks for it
}

// findPrograms finds the OCI runtimes and the shim, and asks containerd for its version.
func (c *Child) findPrograms(ctx context.Context) (found programs, err error) {
	out, err := exec.CommandContext(ctx, c.program, "--version").Output()
	if err != nil {
		return programs{}, fmt.Errorf("%s --version: %w", c.program, err)
	}
	if found.version, err = parseVersion(string(out)); err != nil {
		return programs{}, err
	}
	if found.ociRuntimes, err = newOCIHost(ctx, c.program, c.config.UseBundle()).choose(c.config.OCIRuntime); err != nil {
		return programs{}, err
	}
	// Without a shim containerd returns an error when a pod starts.
	if shim, err := find(c.program, shimName, c.config.UseBundle()); err == nil {
		found.shim = shim
	}
	return found, nil
}

// removeStateOfEarlierBoot removes the state of pods that ran before the last boot. By default containerd keeps it in
// /run, which a boot clears.
func (c *Child) removeStateOfEarlierBoot() error {
	boot, err := host.BootID()
	if err != nil {
		return err
	}
	old, err := os.ReadFile(c.layout.boot)
	if err == nil && strings.TrimSpace(string(old)) == boot {
		return nil
	}
	mounts, err := mount.Below(c.layout.state)
	if err != nil {
		return err
	}
	var errs []error
	if len(mounts) == 0 { // otherwise something is still running there
		for _, dir := range []string{c.layout.state, c.tasks(c.layout.root), c.layout.oci} {
			errs = append(errs, os.RemoveAll(dir))
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	return os.WriteFile(c.layout.boot, []byte(boot), 0o600)
}

// replaceWrappers replaces the wrappers of runc and the shim that earlier versions of monopod installed by links to
// runc and the shim. The shims of pods that those versions started execute the wrapper of runc, and containerd executes
// that of the shim, until the next boot.
func (c *Child) replaceWrappers(found programs) error {
	programs := map[string]string{filepath.Join(c.layout.oci, "bin", shimName): found.shim}
	for _, r := range found.ociRuntimes {
		if r.name == runc {
			programs[filepath.Join(c.layout.oci, runc)] = r.path
		}
	}
	var errs []error
	for wrapper, program := range programs {
		if _, err := os.Lstat(wrapper); err != nil || program == "" || program == wrapper {
			continue
		}
		next := wrapper + ".program" // renamed, because a shim may be executing the wrapper
		err := cni.Link(program, next)
		if err == nil {
			err = os.Rename(next, wrapper)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// runReleasingLeases runs containerd once and meanwhile deletes the leases of an earlier containerd.
func (c *Child) runReleasingLeases(ctx context.Context) error {
	during, stop := context.WithCancel(ctx)
	var deleted sync.WaitGroup
	c.config.Guard.Go(&deleted, "leases", func() { c.deleteOldLeases(during) })
	defer func() { stop(); deleted.Wait() }()
	return c.runOnce(ctx)
}

// runOnce starts containerd and waits for its end; it stops containerd when ctx ends.
//
// If monopod is killed, the kernel kills containerd, too (Pdeathsig). SIGKILL is better than SIGTERM: a containerd that
// gets SIGTERM records its interrupted calls as failures of the containers, a killed one recovers. The kernel sends the
// signal when the thread that started containerd ends, so this goroutine is locked to its thread.
func (c *Child) runOnce(ctx context.Context) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	output := &lineLog{log: c.config.Log}
	cmd := exec.CommandContext(ctx, c.program, "--config", c.layout.config)
	cmd.Stdout, cmd.Stderr, cmd.Env = output, output, childEnv(os.Environ())
	if c.config.UseBundle() { // its shim looks for runc there
		cmd.Env = append(cmd.Env, strings.TrimSuffix("PATH="+filepath.Dir(c.program)+":"+os.Getenv("PATH"), ":"))
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.WaitDelay = stopTimeout
	// A separate process group, so that Ctrl-C does not reach containerd.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := writePID(c.layout.pid, cmd.Process.Pid); err != nil {
		c.config.Log.Warn("cannot record the PID of containerd: the next start cannot stop it if it outlives monopod",
			zap.Error(err))
	}
	err := cmd.Wait()
	return errors.Join(err, os.Remove(c.layout.pid))
}

// childEnv returns env without the variables that systemd sets only for monopod.
func childEnv(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		return strings.HasPrefix(v, "NOTIFY_SOCKET=") || strings.HasPrefix(v, "LISTEN_")
	})
}

// Discard removes everything but files that survives Run: orphaned shims, mounts of the child, its bridge and nftables
// tables. Before, the pods must be removed (RemoveAll) and Run must have returned.
func (c *Child) Discard() error {
	errs := []error{c.endOrphanedShims(context.Background()), mount.Kernel{}.UnmountBelow(c.layout.dir)}
	if c.network.Bridge != "" {
		errs = append(errs, c.network.Remove())
	}
	if dir := filepath.Dir(c.layout.socket); dir != c.layout.dir {
		errs = append(errs, os.RemoveAll(dir))
	}
	return errors.Join(errs...)
}
