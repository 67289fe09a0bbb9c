package cri

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

	"monopod/agent/network/cni"
	"monopod/agent/storage/mount"
	"monopod/apiserver/process/backoff"
	"monopod/apiserver/process/guard"
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

// ChildConfig says which containerd to run for whom.
type ChildConfig struct {
	DataDir    string         // monopod's
	Program    string         // containerd; empty: the one in PATH
	Executable string         // monopod itself, as CNI plugin; empty: the running one
	MaxPods    int            // of the node, so that all have an address; 0: 110
	Systemd    bool           // makes containers' cgroups, as slices' scopes; else runc does
	Services   []netip.Prefix // the ranges of Services' addresses
	Log        *zap.Logger
	Clock      clock.Clock // nil: the real one
}

// Child is a containerd of our own below <data-dir>/containerd, with a pod
// network of its own. What it runs outlives it: after a stop, also a crash, of
// containerd and monopod the pods go on, and the next start takes them over.
type Child struct {
	config      ChildConfig
	layout      layout
	program     string
	snapshotter string
	network     cni.Network // set by prepare
}

// NewChild checks that there is a containerd to run and makes its folders.
func NewChild(config ChildConfig) (*Child, error) {
	dataDir, err := filepath.Abs(config.DataDir)
	if err != nil {
		return nil, err
	}
	c := &Child{config: config, layout: newLayout(dataDir)}
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

// Socket is where the child will listen.
func (c *Child) Socket() string { return c.layout.socket }

// Snapshotter is the one that the child uses: for Config.Snapshotter.
func (c *Child) Snapshotter() string { return c.snapshotter }

// StateDir is where containers lie while they run: for Config.StateDir.
func (c *Child) StateDir() string { return c.layout.state }

// Run keeps containerd running until ctx ends, then stops it and leaves its pods
// alone; where there are none, it takes the pod network down. It fails only before
// the first start; later deaths are logged, and containerd is started again after
// 100 ms, doubling up to 3 s.
func (c *Child) Run(ctx context.Context) error {
	if err := c.prepare(ctx); err != nil {
		return fmt.Errorf("prepare containerd: %w", err)
	}
	c.supervise(ctx)
	if err := c.network.RemoveIdle(); err != nil {
		c.config.Log.Warn("the pod network is left in place", zap.Error(err))
	}
	return nil
}

// supervise starts containerd again and again until ctx ends.
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
			c.config.Log.Warn("what containerd left half made stays", zap.Error(err))
		}
	}
}

// prepare makes everything ready for the first start: an earlier containerd of
// this data folder is gone, network and config are in place.
func (c *Child) prepare(ctx context.Context) error {
	if err := c.stopLeftover(ctx); err != nil {
		return err
	}
	if err := c.clearOldBoot(); err != nil {
		return err
	}
	if err := errors.Join(c.endShims(ctx), c.clearNamespaces()); err != nil {
		return err
	}
	network, err := cni.Prepare(cni.Config{
		Dir: c.layout.cni, ID: c.layout.id, Executable: c.config.Executable, Pods: c.config.MaxPods, Services: c.config.Services, Log: c.config.Log,
	})
	if err != nil {
		return err
	}
	c.network = network
	out, err := exec.CommandContext(ctx, c.program, "--version").Output()
	if err != nil {
		return fmt.Errorf("%s --version: %w", c.program, err)
	}
	major, _, err := parseVersion(string(out))
	if err != nil {
		return err
	}
	text, err := c.settings(major, network).render()
	if err != nil {
		return err
	}
	return os.WriteFile(c.layout.config, []byte(text), 0o600)
}

// clearOldBoot removes the state of pods that ran before the machine was booted:
// elsewhere it lies in /run and is gone by itself.
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
	if len(mounts) == 0 { // else something runs there after all
		if err := errors.Join(os.RemoveAll(c.layout.state), os.RemoveAll(c.tasks(c.layout.root))); err != nil {
			return err
		}
	}
	return os.WriteFile(c.layout.boot, boot, 0o600)
}

// runTidied is runOnce, with what an earlier containerd held given back.
func (c *Child) runTidied(ctx context.Context) error {
	during, stop := context.WithCancel(ctx)
	var tidied sync.WaitGroup
	guard.Logging(c.config.Log).Go(&tidied, "leases", func() { c.endLeases(during) })
	defer func() { stop(); tidied.Wait() }()
	return c.runOnce(ctx)
}

// runOnce starts containerd and waits for its end; it is asked to end when ctx
// does. Should monopod be killed, the kernel sends containerd SIGTERM: it does so
// when the thread ends that started it, so this goroutine keeps its thread.
func (c *Child) runOnce(ctx context.Context) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	output := &lineLog{log: c.config.Log}
	cmd := exec.CommandContext(ctx, c.program, "--config", c.layout.config)
	cmd.Stdout, cmd.Stderr, cmd.Env = output, output, childEnv(os.Environ())
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.WaitDelay = stopping
	// Its own group: a Ctrl-C for monopod is not for containerd.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGTERM}
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := writePID(c.layout.pid, cmd.Process.Pid); err != nil {
		c.config.Log.Warn("a containerd that outlives monopod will not be found again", zap.Error(err))
	}
	err := cmd.Wait()
	return errors.Join(err, os.Remove(c.layout.pid))
}

// childEnv is env without what systemd tells monopod alone.
func childEnv(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		return strings.HasPrefix(v, "NOTIFY_SOCKET=") || strings.HasPrefix(v, "LISTEN_")
	})
}

// Discard takes down what outlives Run: shims that containerd did not see to their
// end, mounts of the child, its bridge and nftables tables. Pods must be gone
// (RemoveAll) and Run have returned. Files stay.
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
