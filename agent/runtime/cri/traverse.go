package cri

import (
	"io/fs"
	"os"
	"path/filepath"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// checkTraversable returns an error if a pod with a user namespace cannot run: its users must be able to traverse the
// folders above its containers. Without this check, runc fails with "error preparing rootfs: permission denied".
func (r *Runtime) checkTraversable(config *cri.PodSandboxConfig) error {
	users := config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions()
	if r.config.StateDir == "" || users == nil || users.Mode != cri.NamespaceMode_POD {
		return nil
	}
	closed, err := untraversable(r.config.StateDir)
	if err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	if closed == "" {
		return nil
	}
	return status.Errorf(codes.FailedPrecondition,
		"hostUsers: false: containers in a user namespace cannot reach their files through %s, "+
			"which other users may not enter: chmod o+x %[1]s", closed)
}

// untraversable returns path, or the nearest folder above it, that other users cannot traverse; empty: there is none.
func untraversable(path string) (closed string, err error) {
	for ; ; path = filepath.Dir(path) {
		info, err := os.Stat(path)
		if err != nil {
			return "", err
		}
		if info.Mode()&traverseOther == 0 {
			return path, nil
		}
		if path == filepath.Dir(path) {
			return "", nil
		}
	}
}

// traverseOther is the permission of other users to traverse a folder.
const traverseOther fs.FileMode = 0o001
