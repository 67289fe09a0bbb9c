package tree

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"monopod/agent/host/mount"
)

// The permissions of a pod's group (upstream: pkg/volume/volume_linux.go).
const (
	GroupWrites = 0o660
	GroupReads  = 0o440
	GroupEnters = 0o110 // of folders
)

// ApplyFSGroup changes the group of all files in dir and lets the group read them and, unless readOnly, write them.
// Folders get setgid, so that new files have the group, too. A nil group changes nothing. With the policy
// OnRootMismatch, nothing is changed if dir has the correct permissions; dir itself is changed last, so that an
// interrupted change is repeated.
//
// ApplyFSGroup does not write correct permissions again, follows no symlink, even one created meanwhile, and stays on
// the file system of dir.
func ApplyFSGroup(dir string, group *int64, readOnly bool, policy *corev1.PodFSGroupChangePolicy) error {
	if group == nil {
		return nil
	}
	top, err := unix.Open(dir, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(top)
	g := groupAccess{group: uint32(*group), bits: GroupWrites}
	if readOnly {
		g.bits = GroupReads
	}
	st, err := Stat(top)
	if err != nil {
		return err
	}
	if policy != nil && *policy == corev1.FSGroupChangeOnRootMismatch && g.applied(st) {
		return nil
	}
	if err := g.applyAll(top, st, st.Dev); err != nil {
		return fmt.Errorf("fsGroup of %s: %w", dir, err)
	}
	return nil
}

// groupAccess is a group and its permissions.
type groupAccess struct{ group, bits uint32 }

// applied reports whether a file has the group and its permissions.
func (g groupAccess) applied(st *unix.Stat_t) bool {
	return st.Gid == g.group && st.Mode&g.mode(st) == g.mode(st)
}

// mode returns the permissions that the group needs for a file or folder.
func (g groupAccess) mode(st *unix.Stat_t) uint32 {
	if IsFolder(st) {
		return g.bits | GroupEnters | unix.S_ISGID
	}
	return g.bits
}

// applyAll changes fd and its content on the same device.
func (g groupAccess) applyAll(fd int, st *unix.Stat_t, device uint64) error {
	if st.Dev != device {
		return nil
	}
	if IsFolder(st) {
		err := each(fd, func(child int, st *unix.Stat_t) error { return g.applyAll(child, st, device) })
		if err != nil {
			return err
		}
	}
	return g.apply(fd, st)
}

// apply changes the mode after the group, because chown clears bits of the mode.
func (g groupAccess) apply(fd int, st *unix.Stat_t) error {
	link := st.Mode&unix.S_IFMT == unix.S_IFLNK
	if st.Gid != g.group {
		if err := unix.Fchownat(fd, "", -1, int(g.group), unix.AT_EMPTY_PATH); err != nil {
			return os.NewSyscallError("chown", err)
		}
	} else if link || g.applied(st) {
		return nil
	}
	if link {
		return nil
	}
	return os.NewSyscallError("chmod", unix.Chmod(mount.Open(fd), st.Mode&^unix.S_IFMT|g.mode(st)))
}

// entriesAtOnce is the number of names of a folder that are read at once.
const entriesAtOnce = 1024

// each calls do for every entry of the folder fd, opened with O_PATH and never through a symlink. It skips entries that
// are removed meanwhile.
func each(fd int, do func(child int, st *unix.Stat_t) error) error {
	inside, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("openat", err)
	}
	dir := os.NewFile(uintptr(inside), "")
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(entriesAtOnce)
		for _, name := range names {
			if err := entry(inside, name, do); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func entry(dir int, name string, do func(child int, st *unix.Stat_t) error) error {
	child, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(child)
	st, err := Stat(child)
	if err != nil {
		return err
	}
	return do(child, st)
}

// Stat describes an open file.
func Stat(fd int) (*unix.Stat_t, error) {
	var st unix.Stat_t
	return &st, os.NewSyscallError("fstat", unix.Fstat(fd, &st))
}

// IgnoreRights ignores EPERM if the agent is not root: it then runs no containers with other users either.
func IgnoreRights(err error) error {
	if errors.Is(err, os.ErrPermission) && os.Geteuid() != 0 {
		return nil
	}
	return err
}
