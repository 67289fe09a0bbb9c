package volume

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"monopod/agent/storage/mount"
)

// What a pod's group may do (upstream: pkg/volume/volume_linux.go).
const (
	groupWrites = 0o660
	groupReads  = 0o440
	groupEnters = 0o110 // of folders
)

// ApplyFSGroup gives all that lies in the folder dir to group and lets the group
// read it and, unless readOnly, write it. New files are the group's too: folders get
// setgid. A nil group changes nothing. Under the policy OnRootMismatch a folder whose
// top is right already is left alone; the top is changed last, so that a change cut
// short is made again.
//
// It changes nothing that is right, follows no symlink, also none put there
// meanwhile, and stays on the file system of dir.
func ApplyFSGroup(dir string, group *int64, readOnly bool, policy *corev1.PodFSGroupChangePolicy) error {
	if group == nil {
		return nil
	}
	top, err := unix.Open(dir, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(top)
	o := owner{group: uint32(*group), bits: groupWrites}
	if readOnly {
		o.bits = groupReads
	}
	st, err := stat(top)
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

// owner is a group and what it may do.
type owner struct{ group, bits uint32 }

// right says whether the group owns a folder and may use it.
func (o owner) right(st *unix.Stat_t) bool {
	return st.Gid == o.group && st.Mode&o.mode(st) == o.mode(st)
}

// mode is what the group needs of a file or folder.
func (o owner) mode(st *unix.Stat_t) uint32 {
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return o.bits | groupEnters | unix.S_ISGID
	}
	return o.bits
}

// give gives what fd is, and all in it that is on device, to the group.
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

// giveOne changes the mode after the owner, which takes bits away.
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

// entriesAtOnce is how many names of a folder are held in memory.
const entriesAtOnce = 1024

// each calls do with every entry of the folder that fd is, opened as O_PATH and
// never through a symlink. What vanishes meanwhile is left out.
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
	st, err := stat(child)
	if err != nil {
		return err
	}
	return do(child, st)
}

func stat(fd int) (*unix.Stat_t, error) {
	var st unix.Stat_t
	return &st, os.NewSyscallError("fstat", unix.Fstat(fd, &st))
}

// ignoreRights lets pass that files cannot be given away: who runs the agent without
// root's rights runs no containers either that have others.
func ignoreRights(err error) error {
	if errors.Is(err, os.ErrPermission) && os.Geteuid() != 0 {
		return nil
	}
	return err
}
