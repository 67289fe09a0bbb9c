// Package containerd finds the containerd of the machine or runs one of Monopod's own:
// Possible checks the machine, Locate decides, Await waits for a given one, and Child
// starts one below the data folder and keeps it running. It supports containerd 1.6 and
// 2.x; package cri talks to it.
package containerd

import (
	"cmp"
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

	"monopod/agent/host/mount"
	"monopod/agent/network/cni"
	"monopod/apiserver/kit/backoff"
	"monopod/apiserver/kit/guard"
	"monopod/apiserver/kit/kernel"
)

const (
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 3 * time.Second
	// settled is how long containerd must have run for its next death to count as
	// the first.
	settled = 10 * time.Second
	// stopping is how long containerd gets between SIGTERM and SIGKILL.
	stopping = 5 * time.Second
)

// Config of a Child.
type Config struct {
	DataDir string // monopod's
	Program string // containerd; empty: the one in PATH
	// name or path of the program that starts containers; empty or auto: crun or runc, see choose
	OCIRuntime string
	Executable string         // monopod itself, as CNI plugin; empty: the running one
	MaxPods    int            // of the node, for the size of the pod network; 0: 110
	Admit      cni.Admit      // asked before a pod has its addresses; nil: no check
	Systemd    bool           // makes containers' cgroups, as slices' scopes; else the OCI runtime does
	Pods       []netip.Prefix // the ranges of pods' addresses; empty: chosen
	Services   []netip.Prefix // the ranges of Services' addresses
	Log        *zap.Logger
	Guard      *guard.Guard // of the goroutine that releases leases; nil: its panic is only recovered
	Clock      clock.Clock  // nil: the real one
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
	if c.program, err = findProgram(config.Program); err != nil {
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

func findProgram(program string) (string, error) {
	path, err := exec.LookPath(cmp.Or(program, "containerd"))
	if err != nil {
		return "", fmt.Errorf("cannot start containerd: %w; %s", err, install)
	}
	return filepath.Abs(path)
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

// Prepared is Network without waiting; zero: Run has not set it up.
func (c *Child) Prepared() cni.Network {
	select {
	case <-c.prepared:
		return c.network
	default:
		return cni.Network{}
	}
}

// Run keeps containerd running until ctx ends, then stops it without its pods; if
// there are no pods, it removes the pod network. It fails only before the first
// start; later deaths are logged, and containerd is restarted after 100 ms, doubling
// up to 3 s.
func (c *Child) Run(ctx context.Context) error {
	if err := c.prepare(ctx); err != nil {
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

// serveNetwork answers the network plugin until the returned function is called:
// longer than ctx, because a containerd that stops may still run the plugin. Without
// the server, the plugin does its work by itself.
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

// routesSettle is how long after a change of routes the pod network adapts: the start of a pod is many changes.
const routesSettle = time.Second

// followRoutes adapts the pod network to the host's routes until ctx ends.
func (c *Child) followRoutes(ctx context.Context) {
	for range kernel.WatchNetwork(ctx) {
		if !backoff.Sleep(ctx, c.config.Clock, routesSettle) {
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
		err := c.runTidied(ctx)
		if ctx.Err() != nil {
			return
		}
		if c.config.Clock.Since(began) > settled {
			retry.Reset()
		}
		pause := retry.Next()
		c.config.Log.Error("containerd ended", zap.Error(err), zap.Duration("startAgainAfter", pause))
		if !backoff.Sleep(ctx, c.config.Clock, pause) {
			return
		}
		if err := errors.Join(c.endShims(ctx), c.clearNamespaces(), c.network.Reclaim()); err != nil {
			c.config.Log.Warn("failed to clean up partially created containers", zap.Error(err))
		}
	}
}

// prepare prepares the first start: it stops an earlier containerd of this data
// folder and writes network and config.
func (c *Child) prepare(ctx context.Context) error {
	programs, err := c.findPrograms(ctx)
	if err != nil {
		return err
	}
	if err := c.stopLeftover(ctx); err != nil {
		return err
	}
	if err := c.clearOldBoot(); err != nil {
		return err
	}
	if err := errors.Join(c.endShims(ctx), c.clearNamespaces(), c.replaceFronts(programs)); err != nil {
		return err
	}
	network, err := cni.Prepare(cni.Config{
		Dir: c.layout.cni, ID: c.layout.id, Executable: c.config.Executable, Pods: c.config.MaxPods, Subnets: c.config.Pods, Services: c.config.Services, Log: c.config.Log,
	})
	if err != nil {
		return err
	}
	c.network = network
	c.once.Do(func() { close(c.prepared) })
	return os.WriteFile(c.layout.config, []byte(c.configFile(programs, network).render()), 0o600)
}

// shimName is the program that keeps the containers of a pod.
const shimName = "containerd-shim-runc-v2"

// programs are what containers run with.
type programs struct {
	version  programVersion
	runtimes []ociRuntime // the default one first
	shim     string       // absolute; empty: containerd looks for it
}

// findPrograms finds them, and asks containerd for its version.
func (c *Child) findPrograms(ctx context.Context) (found programs, err error) {
	out, err := exec.CommandContext(ctx, c.program, "--version").Output()
	if err != nil {
		return programs{}, fmt.Errorf("%s --version: %w", c.program, err)
	}
	if found.version, err = parseVersion(string(out)); err != nil {
		return programs{}, err
	}
	if found.runtimes, err = newOCIHost(ctx, c.program).choose(c.config.OCIRuntime); err != nil {
		return programs{}, err
	}
	if shim, err := nextTo(c.program, shimName); err == nil { // otherwise containerd reports it when a pod starts
		found.shim = shim
	}
	return found, nil
}

// clearOldBoot removes the state of pods from before the last boot, which other
// containerds keep in /run.
func (c *Child) clearOldBoot() error {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	old, err := os.ReadFile(c.layout.boot)
	if err == nil && string(old) == string(boot) {
		return nil
	}
	mounts, err := mount.Below(c.layout.state)
	if err != nil {
		return err
	}
	if len(mounts) == 0 { // otherwise something is still running there
		if err := errors.Join(os.RemoveAll(c.layout.state), os.RemoveAll(c.tasks(c.layout.root)), os.RemoveAll(c.layout.oci)); err != nil {
			return err
		}
	}
	return os.WriteFile(c.layout.boot, boot, 0o600)
}

// replaceFronts replaces the programs that earlier versions put in front of runc and the shim by links to those. The
// shims of pods which earlier versions started execute the one, and containerd the other, until the machine boots.
func (c *Child) replaceFronts(found programs) error {
	behind := map[string]string{filepath.Join(c.layout.oci, "bin", shimName): found.shim}
	for _, r := range found.runtimes {
		if r.name == runc {
			behind[filepath.Join(c.layout.oci, runc)] = r.path
		}
	}
	var errs []error
	for front, program := range behind {
		if _, err := os.Lstat(front); err != nil || program == "" || program == front {
			continue
		}
		next := front + ".program" // renamed, because a shim may execute the front now
		err := cni.Link(program, next)
		if err == nil {
			err = os.Rename(next, front)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// runTidied is runOnce, and releases the leases of an earlier containerd.
func (c *Child) runTidied(ctx context.Context) error {
	during, stop := context.WithCancel(ctx)
	var tidied sync.WaitGroup
	c.config.Guard.Go(&tidied, "leases", func() { c.endLeases(during) })
	defer func() { stop(); tidied.Wait() }()
	return c.runOnce(ctx)
}

// runOnce starts containerd and waits for its end; it stops containerd when ctx ends.
// If monopod is killed, the kernel kills containerd, too: a containerd that is asked to
// stop records its interrupted calls as failures of the containers, a killed one
// recovers. The kernel does this when the thread that started it ends, so this
// goroutine keeps its thread.
func (c *Child) runOnce(ctx context.Context) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	output := &lineLog{log: c.config.Log}
	cmd := exec.CommandContext(ctx, c.program, "--config", c.layout.config)
	cmd.Stdout, cmd.Stderr, cmd.Env = output, output, childEnv(os.Environ())
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.WaitDelay = stopping
	// A separate process group, so that Ctrl-C does not reach containerd.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := writePID(c.layout.pid, cmd.Process.Pid); err != nil {
		c.config.Log.Warn("cannot record the PID of containerd: the next start cannot find it if it outlives monopod", zap.Error(err))
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

// Discard removes everything that survives Run: orphaned shims, mounts of the child,
// its bridge and nftables tables. The pods must be removed (RemoveAll) and Run must
// have returned. Files stay.
func (c *Child) Discard() error {
	errs := []error{c.endShims(context.Background()), mount.Kernel{}.UnmountBelow(c.layout.dir)}
	if c.network.Bridge != "" {
		errs = append(errs, c.network.Remove())
	}
	if dir := filepath.Dir(c.layout.socket); dir != c.layout.dir {
		errs = append(errs, os.RemoveAll(dir))
	}
	return errors.Join(errs...)
}
