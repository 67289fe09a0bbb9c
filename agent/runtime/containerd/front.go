package containerd

import (
	_ "embed"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"monopod/agent/network/cni"
)

var (
	//go:embed front/runc_amd64
	runcAMD64 []byte
	//go:embed front/runc_arm64
	runcARM64 []byte
	//go:embed front/shim_amd64
	shimAMD64 []byte
	//go:embed front/shim_arm64
	shimARM64 []byte
)

// shimName is the program that containerd starts for each pod, and for each of its containers.
const shimName = "containerd-shim-runc-v2"

// fronts are the programs in front of others, by the name of the other one and the architecture (see the folder front).
var fronts = map[string]map[string][]byte{
	runc:     {"amd64": runcAMD64, "arm64": runcARM64},
	shimName: {"amd64": shimAMD64, "arm64": shimARM64},
}

// fronted returns the programs with the front in the place of runc, and the folder in which containerd must look for programs
// first to find the front of the shim: empty if it must not, because they do not speak as the front does, or pods run with
// a program that it does not know. The fronts are written to dir, that of the shim to a folder there of its own, because a
// container for which no OCI runtime is configured (one of ctr) runs with the first runc in PATH. Containers that run with
// other programs, or with the same ones directly, do not notice: what a front does is the same.
func (p programs) fronted(dir string) (fronted programs, path string, err error) {
	path = filepath.Join(dir, "bin")
	if err := os.MkdirAll(path, 0o700); err != nil {
		return p, "", err
	}
	var mounted unix.Statfs_t
	if err := unix.Statfs(dir, &mounted); err != nil || mounted.Flags&unix.ST_NOEXEC != 0 {
		return p, "", err
	}
	fronted = p
	fronted.runtimes = nil
	for _, r := range p.runtimes {
		if r.name == runc {
			if r.path, err = front(dir, runc, r.path); err != nil {
				return p, "", err
			}
		}
		fronted.runtimes = append(fronted.runtimes, r)
	}
	if p.shim == "" {
		return fronted, "", nil
	}
	// Also if it is not used: pods that another containerd started may have it.
	shim, err := front(path, shimName, p.shim)
	known := len(p.runtimes) > 0 && (p.runtimes[0].name == runc || p.runtimes[0].name == crun) && frontKnows(p.version) && frontKnows(p.shimVersion)
	if shim == p.shim || !known || strings.Contains(path, ":") {
		return fronted, "", err
	}
	return fronted, path, err
}

// frontKnows reports whether the front of the shim does what the shim of this version does, and containerd expects.
func frontKnows(v programVersion) bool { return v.major == 1 && (v.minor == 6 || v.minor == 7) }

// front writes the front of the program at path to dir, and returns where it is: the same path if this architecture has none.
func front(dir, name, path string) (string, error) {
	program := fronts[name][runtime.GOARCH]
	if program == nil {
		return path, nil
	}
	placed := filepath.Join(dir, name)
	if err := cni.Link(path, placed+".program"); err != nil {
		return "", err
	}
	return placed, cni.WriteProgram(placed, program)
}
