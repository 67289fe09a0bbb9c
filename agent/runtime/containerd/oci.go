package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// ociRuntime is a program that starts and kills containers. A RuntimeClass can name it as handler.
type ociRuntime struct{ name, path string }

// Programs that auto chooses from. A pod needs seven calls. For each of them runc, which is written in Go, uses up to
// 10 MB of memory and some 20 ms of CPU; crun uses a small part of that.
const (
	runc = "runc"
	crun = "crun"
)

// ociHost is the part of the machine that the choice of OCI runtimes depends on.
type ociHost struct {
	look    func(name string) (path string, err error) // a program that auto chooses from
	path    func(name string) (path string, err error) // a program that the user names
	version func(path string) (output string, err error)
	cgroups string // where cgroups are mounted
}

// choose returns the usable OCI runtimes, the default one first. want is --oci-runtime: the name or path of a program,
// or auto, which prefers crun where it works.
func (h ociHost) choose(want string) ([]ociRuntime, error) {
	var all []ociRuntime
	for _, name := range []string{crun, runc} {
		path, err := h.look(name)
		if err == nil && (name != crun || h.checkCrun(path) == nil) {
			all = append(all, ociRuntime{name, path})
		}
	}
	if want == "" || want == Auto {
		if len(all) == 0 {
			return nil, fmt.Errorf("cannot start containers: neither runc nor a usable crun is in PATH; %s", install)
		}
		return all, nil
	}
	path, err := h.look(want)
	if err != nil {
		path, err = h.path(want)
	}
	if err != nil {
		return nil, fmt.Errorf("--oci-runtime: %w; install it, or leave the flag out", err)
	}
	chosen := ociRuntime{filepath.Base(path), path}
	all = slices.DeleteFunc(all, func(r ociRuntime) bool { return r.name == chosen.name })
	return slices.Insert(all, 0, chosen), nil
}

// checkCrun returns an error if crun cannot be used: if it is older than 1.8, or if the machine has cgroup v1 with some
// controllers in v2, which crun refuses.
func (h ociHost) checkCrun(path string) error {
	out, err := h.version(path)
	if err != nil {
		return err
	}
	v, err := parseVersion(out)
	if err != nil {
		return err
	}
	if v.major < 1 || v.major == 1 && v.minor < 8 {
		return fmt.Errorf("crun %d.%d is older than 1.8", v.major, v.minor)
	}
	controllers, err := os.ReadFile(filepath.Join(h.cgroups, "unified/cgroup.controllers"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if names := strings.Fields(string(controllers)); len(names) > 0 {
		return fmt.Errorf("crun does not start containers on a machine with cgroup v1 whose controllers %s are in cgroup v2",
			strings.Join(names, ", "))
	}
	return nil
}

// newOCIHost returns the running machine. It looks for programs next to containerd, then in PATH, unless only is true.
func newOCIHost(ctx context.Context, containerd string, only bool) ociHost {
	return ociHost{
		look: func(name string) (string, error) { return find(containerd, name, only) },
		path: exec.LookPath,
		version: func(path string) (string, error) {
			out, err := exec.CommandContext(ctx, path, "--version").Output()
			return string(out), err
		},
		cgroups: "/sys/fs/cgroup",
	}
}

// find returns the absolute path of the program name in the folder of another program, or else in PATH, unless only is
// true.
func find(program, name string, only bool) (string, error) {
	path, err := exec.LookPath(filepath.Join(filepath.Dir(program), filepath.Base(name)))
	if err == nil && !filepath.IsAbs(name) || only {
		return path, err
	}
	path, err = exec.LookPath(name)
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

// CheckCrun returns an error if --oci-runtime=auto does not choose crun: exec.ErrNotFound if it is not installed.
func (o Options) CheckCrun(ctx context.Context) error {
	if o.UseBundle() {
		return exec.ErrNotFound
	}
	program, err := o.program("")
	if err != nil {
		return err
	}
	h := newOCIHost(ctx, program, false)
	path, err := h.look(crun)
	if err != nil {
		return err
	}
	return h.checkCrun(path)
}
