package logs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// messageBound is what a termination message may take of the node's disk. Sixteen
	// times what is read of it: a container that writes no more is left alone.
	messageBound = 16 * maxMessage
	// block is what file systems give back at a time, at least.
	block = 4096
)

// length is a file's; 0 where there is none.
func length(path string) int64 {
	info, err := os.Lstat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// allocated is what a file takes of the disk; 0 where there is none.
func allocated(path string) int64 {
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil {
		return 0
	}
	return st.Blocks * 512 // whatever the file system's own unit
}

// shortenMessage gives back to the disk all of a termination message but its end, which
// is what is read of it. Its length stays, and so does the place of who writes it. A
// file system that cannot do that loses all of it.
func shortenMessage(path string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	if head := (st.Size - maxMessage) / block * block; head > 0 {
		err = unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, head)
	}
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		err = unix.Ftruncate(fd, 0)
	case err == nil && allocated(path) > messageBound: // reserved behind its end
		err = unix.Ftruncate(fd, st.Size)
	}
	return os.NewSyscallError("shorten termination message", err)
}
