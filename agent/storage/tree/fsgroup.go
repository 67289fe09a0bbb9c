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

// Permissions of a pod's group (upstream: pkg/volume/volume_linux.go).
const (
	GroupWrites = 0o660
	GroupReads  = 0o440
	GroupEnters = 0o110 // of folders
)

// ApplyFSGroup changes the group of all files in dir and lets the group read them and, unless
// readOnly, write them. Folders get setgid, so that new files have the group, too. A nil group
// changes nothing. With the policy OnRootMismatch a folder with correct permissions is skipped;
// dir itself is changed last, so that an interrupted change is repeated.
//
// It does not write what is correct, follows no symlink, even one created meanwhile, and stays on
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
	o := owner{group: uint32(*group), bits: GroupWrites}
	if readOnly {
		o.bits = GroupReads
	}
	st, err := Stat(top)
	if err != nil {
		return err
	}
	if policy != nil && *policy == corev1.FSGroupChangeOnRootMismatch && o.right(st) {
		return nil
	}
	if err := o.give(top, st, st.Dev); err != nil {
		return fmt.Errorf("fsGroup of %s: %w", dir, err)
	}
	return nil
}

// owner is a group and its permissions.
type owner struct{ group, bits uint32 }

// right reports whether a folder has the group and its permissions.
func (o owner) right(st *unix.Stat_t) bool {
	return st.Gid == o.group && st.Mode&o.mode(st) == o.mode(st)
}

// mode returns the permissions that the group needs for a file or folder.
func (o owner) mode(st *unix.Stat_t) uint32 {
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return o.bits | GroupEnters | unix.S_ISGID
	}
	return o.bits
}

// give changes fd, and all in it on the same device.
func (o owner) give(fd int, st *unix.Stat_t, device uint64) error {
	if st.Dev != device {
		return nil
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		if err := each(fd, func(child int, st *unix.Stat_t) error { return o.give(child, st, device) }); err != nil {
			return err
		}
	}
	return o.giveOne(fd, st)
}

// giveOne changes the mode after the owner, because chown clears bits of the mode.
func (o owner) giveOne(fd int, st *unix.Stat_t) error {
	link := st.Mode&unix.S_IFMT == unix.S_IFLNK
	if st.Gid != o.group {
		if err := unix.Fchownat(fd, "", -1, int(o.group), unix.AT_EMPTY_PATH); err != nil {
			return os.NewSyscallError("chown", err)
		}
	} else if link || o.right(st) {
		return nil
	}
	if link {
		return nil
	}
	return os.NewSyscallError("chmod", unix.Chmod(mount.Open(fd), st.Mode&^unix.S_IFMT|o.mode(st)))
}

// entriesAtOnce is how many names of a folder are read at once.
const entriesAtOnce = 1024

// each calls do for every entry of the folder fd, opened as O_PATH and never through a symlink. It
// skips entries that vanish meanwhile.
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

// IgnoreRights ignores EPERM if the agent is not root: it then runs no containers with other users
// either.
func IgnoreRights(err error) error {
	if errors.Is(err, os.ErrPermission) && os.Geteuid() != 0 {
		return nil
	}
	return err
}
