package cri

import (
	"io/fs"
	"os"
	"path/filepath"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// mayPass returns why a pod with a user namespace cannot run: its users must be able
// to traverse the folders above its containers. runc's own words would be "error
// preparing rootfs: permission denied".
func (r *Runtime) mayPass(config *cri.PodSandboxConfig) error {
	users := config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions()
	if r.config.StateDir == "" || users == nil || users.Mode != cri.NamespaceMode_POD {
		return nil
	}
	closed, err := barrier(r.config.StateDir)
	if err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	if closed == "" {
		return nil
	}
	return status.Errorf(codes.FailedPrecondition,
		"hostUsers: false: containers in a user namespace cannot reach their files through %s, which other users may not enter: chmod o+x %[1]s", closed)
}

// barrier returns the first folder above path that other users cannot traverse;
// empty: none.
func barrier(path string) (closed string, err error) {
	for ; ; path = filepath.Dir(path) {
		info, err := os.Stat(path)
		if err != nil {
			return "", err
		}
		if info.Mode()&mayPassOther == 0 {
			return path, nil
		}
		if path == filepath.Dir(path) {
			return "", nil
		}
	}
}

// mayPassOther is the permission of other users to traverse a folder.
const mayPassOther fs.FileMode = 0o001
