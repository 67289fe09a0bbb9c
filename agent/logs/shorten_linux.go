package logs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// messageBound is the maximum disk usage of a termination message: sixteen times the part that is read.
	messageBound = 16 * maxMessage
	// block is the smallest unit that file systems free.
	block = 4096
)

// length returns the length of a file; 0 if it does not exist.
func length(path string) int64 {
	info, err := os.Lstat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// allocated returns the disk usage of a file; 0 if it does not exist.
func allocated(path string) int64 {
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil {
		return 0
	}
	return st.Blocks * 512 // the unit of st_blocks on every file system
}

// shortenMessage frees the disk space of a termination message except its end, the only part that is read. The length
// and the writer's offset do not change. On a file system that cannot punch holes the whole message is lost.
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
	case err == nil:
		var now unix.Stat_t
		// Free blocks that are preallocated beyond the end.
		if err = unix.Fstat(fd, &now); err == nil && now.Size == st.Size && now.Blocks*512 > messageBound {
			err = unix.Ftruncate(fd, st.Size)
		}
	}
	return os.NewSyscallError("shorten termination message", err)
}
