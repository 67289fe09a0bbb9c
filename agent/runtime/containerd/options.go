package containerd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"monopod/agent/host"
	"monopod/agent/network/cni"
	"monopod/agent/runtime/cri"
)

// remedy ends every error that says why a machine cannot run containers.
const remedy = "or run with --runtime=fake, which keeps pods in memory"

// install ends the errors about missing programs.
const install = "install containerd and runc (with apt, dnf or apk), " + remedy

// machine is the part of the machine that Options.Possible checks.
type machine struct {
	user          int
	hasCapability func(capability int) bool
	find          func(program string) error
}

// Options choose the containerd and the OCI runtime.
type Options struct {
	Containerd string // auto, bundled, path:DIR or a socket; empty: auto
	BinDir     string // folder of the bundled programs; empty: <data-dir>/bin
	OCIRuntime string // of monopod's own containerd: the name or path of a program; empty or Auto: crun or runc
}

// Flags adds the flags.
func (o *Options) Flags(f *pflag.FlagSet) {
	f.StringVar(&o.Containerd, "containerd", Auto,
		"containerd that runs the pods. auto: the bundled one, or the one in PATH if this program has none. bundled: the "+
			"bundled one. path:DIR: the one in a folder. Otherwise the socket of a running containerd.")
	f.StringVar(&o.BinDir, "bin-dir", "",
		"Folder to which the bundled containerd, shim and runc are written. Empty: bin in the data folder.")
	f.StringVar(&o.OCIRuntime, "oci-runtime", Auto,
		"Program that starts the containers of monopod's own containerd: the name or path of one that is used like runc. "+
			"auto: crun if it is installed and works on this machine, otherwise runc.")
}

// Possible returns an error if this machine cannot run containers, as far as that can be checked before anything is
// started.
func (o Options) Possible() error {
	return machine{
		user:          os.Geteuid(),
		hasCapability: hasCapability,
		find:          func(program string) error { _, err := exec.LookPath(program); return err },
	}.possible(o)
}

func (m machine) possible(o Options) error {
	if m.user != 0 {
		return fmt.Errorf("cannot run containers as user %d: root is required; use sudo, %s", m.user, remedy)
	}
	if !m.hasCapability(unix.CAP_SYS_ADMIN) || !m.hasCapability(unix.CAP_NET_ADMIN) {
		return fmt.Errorf(
			"cannot run containers without the capabilities CAP_SYS_ADMIN and CAP_NET_ADMIN; "+
				"in a container, run it with --privileged, %s", remedy)
	}
	if o.Socket() != "" || o.UseBundle() && (o.OCIRuntime == "" || o.OCIRuntime == Auto) {
		return nil
	}
	program := "containerd"
	if dir, ok := strings.CutPrefix(o.Containerd, folder); ok {
		program = filepath.Join(dir, program)
	}
	if err := m.find(program); err != nil && !o.UseBundle() {
		return fmt.Errorf("cannot start containerd: %w; %s", err, install)
	}
	if o.OCIRuntime != "" && o.OCIRuntime != Auto {
		if err := m.find(o.OCIRuntime); err != nil {
			return fmt.Errorf("--oci-runtime: cannot start containers: %w; install it, leave the flag out, %s", err, remedy)
		}
		return nil
	}
	if err := m.find(runc); err != nil && m.find(crun) != nil {
		return fmt.Errorf("cannot start containers: %w; %s", err, install)
	}
	return nil
}

// SetUp does what a bare machine leaves to its programs: it loads modules, mounts cgroup v2 if no control groups are
// mounted, and sets up the loopback device, without which the API server cannot listen.
func SetUp() error { return errors.Join(host.LoadModules("/"), host.MountCgroups(), cni.LoopbackUp()) }

// Privileged reports whether this process has the capabilities that containers need.
func Privileged() bool { return hasCapability(unix.CAP_SYS_ADMIN) && hasCapability(unix.CAP_NET_ADMIN) }

// hasCapability reports whether this process has a capability.
func hasCapability(capability int) bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false
	}
	return data[capability/32].Effective&(1<<(capability%32)) != 0
}

const (
	// awaitTimeout is how long Await waits, because containerd and monopod may be started together.
	awaitTimeout = 10 * time.Second
	// awaitInterval is the time between two attempts.
	awaitInterval = 200 * time.Millisecond
)

// Await waits until the CRI of containerd answers at socket. It gives up after 10 s, and at once if containerd does not
// serve CRI.
func Await(ctx context.Context, socket string, clock clock.Clock, log *zap.Logger) error {
	conn, err := cri.Dial(socket)
	if err != nil {
		return fmt.Errorf("--containerd: %w", err)
	}
	defer conn.Close()
	client := api.NewRuntimeServiceClient(conn)
	for began, logged := clock.Now(), false; ; {
		err := version(ctx, socket, client)
		switch {
		case err == nil || ctx.Err() != nil:
			return nil
		case status.Code(err) == codes.Unimplemented:
			return fmt.Errorf(
				`--containerd: %s does not serve CRI: %w; take "cri" out of disabled_plugins in containerd's config.toml, `+
					"leave the flag out so that monopod starts its own containerd, %s", socket, err, remedy)
		case clock.Since(began) >= awaitTimeout:
			return fmt.Errorf("--containerd: no containerd answers: %w; start containerd (systemctl start containerd), "+
				"leave the flag out so that monopod finds or starts one, %s", err, remedy)
		case !logged:
			logged = true
			log.Warn("waiting for containerd", zap.String("socket", socket), zap.Duration("atMost", awaitTimeout),
				zap.Error(err))
		}
		select {
		case <-clock.After(awaitInterval):
		case <-ctx.Done():
			return nil
		}
	}
}

// version checks that CRI answers. It connects without gRPC first, whose errors are less clear.
func version(ctx context.Context, socket string, client api.RuntimeServiceClient) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return err
	}
	conn.Close()
	if _, err = client.Version(ctx, &api.VersionRequest{}); err != nil {
		return reason{err}
	}
	return nil
}

// reason is the error of a call; its text is the message of the status.
type reason struct{ error }

func (r reason) Error() string              { return status.Convert(r.error).Message() }
func (r reason) GRPCStatus() *status.Status { return status.Convert(r.error) }
