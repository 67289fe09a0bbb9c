package containerd

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
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
		return fmt.Errorf("--containerd must be auto, bundled, path:DIR or the absolute path of a socket, got %q", o.Containerd)
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
		dir, err := unpack(bin)
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
