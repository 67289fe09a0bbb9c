package containerd

import (
	_ "embed"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"monopod/agent/network/cni"
)

//go:embed front/front_amd64
var frontAMD64 []byte

//go:embed front/front_arm64
var frontARM64 []byte

// front returns the program that shims start as runc (see front/front.c), for the architecture; nil if there is none.
func front(arch string) []byte {
	switch arch {
	case "amd64":
		return frontAMD64
	case "arm64":
		return frontARM64
	default:
		return nil
	}
}

// frontRunc returns runtimes with the front in place of runc, which is written to dir. Containers that
// run with another runc, or with the same one directly, do not notice: what the front does is the same.
func frontRunc(dir string, runtimes []ociRuntime) ([]ociRuntime, error) {
	program := front(runtime.GOARCH)
	if program == nil {
		return runtimes, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	var mounted unix.Statfs_t
	if err := unix.Statfs(dir, &mounted); err != nil || mounted.Flags&unix.ST_NOEXEC != 0 {
		return runtimes, err
	}
	var fronted []ociRuntime
	for _, r := range runtimes {
		if r.name == runc {
			path := filepath.Join(dir, runc)
			if err := cni.Link(r.path, path+".program"); err != nil {
				return nil, err
			}
			if err := cni.WriteProgram(path, program); err != nil {
				return nil, err
			}
			r.path = path
		}
		fronted = append(fronted, r)
	}
	return fronted, nil
}
