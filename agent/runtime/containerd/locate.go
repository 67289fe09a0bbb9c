package containerd

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/runtime/cri"
)

const (
	// Auto means Monopod's own containerd: the bundled one, or the one in PATH if this program has none.
	Auto = "auto"
	// bundled means the containerd inside this program.
	bundled = "bundled"
	// own is what earlier versions called a containerd that monopod starts.
	own = "own"
	// folder begins the name of a folder with the programs.
	folder = "path:"
	// hostSocket is the socket of the machine's containerd, which earlier versions used if it had a pod network.
	hostSocket = "/run/containerd/containerd.sock"
	// probeTimeout is the deadline of a call that checks whether a containerd answers.
	probeTimeout = 2 * time.Second
)

// Socket returns the socket of the containerd that --containerd names; empty: monopod runs a Child.
func (o Options) Socket() string {
	switch o.Containerd {
	case "", Auto, bundled, own:
		return ""
	}
	if strings.HasPrefix(o.Containerd, folder) {
		return ""
	}
	return strings.TrimPrefix(o.Containerd, "unix://")
}

// Check returns an error if --containerd has no meaning.
func (o Options) Check() error {
	if s := o.Socket(); s != "" && !filepath.IsAbs(s) {
		return fmt.Errorf("--containerd must be auto, bundled, path:DIR or the absolute path of a socket, got %q",
			o.Containerd)
	}
	if dir, ok := strings.CutPrefix(o.Containerd, folder); ok && !filepath.IsAbs(dir) {
		return fmt.Errorf("--containerd=path:DIR must be an absolute path, got %q", dir)
	}
	if o.Containerd == bundled && !Bundled() {
		return fmt.Errorf("--containerd=bundled: this program was built without containerd; "+
			"use a program from make build, or leave the flag out and %s", install)
	}
	return nil
}

// UseBundle reports whether the Child runs the programs of the bundle.
func (o Options) UseBundle() bool {
	return Bundled() && !strings.HasPrefix(o.Containerd, folder)
}

// program returns the path of the containerd that the Child runs.
func (o Options) program(dataDir string) (string, error) {
	if o.UseBundle() {
		bin := o.BinDir
		if bin == "" {
			bin = filepath.Join(dataDir, "bin")
		}
		dir, err := archive{bundle: bundle}.unpack(bin)
		return filepath.Join(dir, "containerd"), err
	}
	name := "containerd"
	if dir, ok := strings.CutPrefix(o.Containerd, folder); ok {
		name = filepath.Join(dir, name)
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("cannot start containerd: %w; %s", err, install)
	}
	return filepath.Abs(path)
}

// HadChild reports whether a Child has run in the data folder.
func HadChild(dataDir string) bool {
	_, err := os.Stat(filepath.Join(dataDir, "containerd", "root"))
	return err == nil
}

// CheckMoved returns an error if pods of the data folder run in the machine's containerd, where an earlier version
// started them: a Child would start each a second time.
func CheckMoved(ctx context.Context, dataDir string) error {
	if _, err := os.Stat(hostSocket); err != nil || HadChild(dataDir) {
		return nil
	}
	conn, err := cri.Dial(hostSocket)
	if err != nil {
		return fmt.Errorf("--containerd: %w", err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	sandboxes, err := api.NewRuntimeServiceClient(conn).ListPodSandbox(ctx, &api.ListPodSandboxRequest{})
	if err != nil { // it runs, but no pods in it
		return nil
	}
	return moved(dataDir, sandboxes.Items)
}

// moved decides for CheckMoved: a pod of the data folder has a folder there, named after its UID.
func moved(dataDir string, sandboxes []*api.PodSandbox) error {
	for _, s := range sandboxes {
		if _, err := os.Stat(filepath.Join(dataDir, "pods", s.Metadata.GetUid())); err == nil && s.Metadata.GetUid() != "" {
			return fmt.Errorf("pod %s/%s of %s runs in the machine's containerd, which is used only if it is named: "+
				"keep it with --containerd=%s, or delete all pods of this node before the flag is left out",
				s.Metadata.Namespace, s.Metadata.Name, dataDir, hostSocket)
		}
	}
	return nil
}
