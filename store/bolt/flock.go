package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrLocked means that another process uses the file or its folder.
var ErrLocked = errors.New("in use by another process")

const (
	// LockTimeout is how long LockFile waits until another process releases its lock.
	LockTimeout = time.Second
	lockRetry   = 20 * time.Millisecond
	// lockReadings is how often /proc/locks is read, because a line may be missing while other locks change.
	lockReadings = 5
)

// LockFile takes the lock of f, unix.LOCK_EX or unix.LOCK_SH. The lock ends when f is closed.
func LockFile(f *os.File, how int) error {
	for deadline := time.Now().Add(LockTimeout); ; time.Sleep(lockRetry) {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		if time.Now().After(deadline) {
			return inUse(f)
		}
	}
}

// LockDir takes the lock of a folder. A process that creates, replaces or uses the file in it must hold this lock,
// because the lock of the folder outlives the removal or replacement of the file.
func LockDir(dir string) (*os.File, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := LockFile(d, unix.LOCK_EX); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// inUse returns ErrLocked with the process that holds the lock of f, if it is known.
func inUse(f *os.File) error {
	what := "stop it, or choose another --data-dir"
	if holder := holder(f); holder != "" {
		return fmt.Errorf("%s: %w (%s): %s", f.Name(), ErrLocked, holder, what)
	}
	return fmt.Errorf("%s: %w: %s", f.Name(), ErrLocked, what)
}

// holder returns the process that holds the lock of f according to /proc/locks; empty: unknown.
func holder(f *os.File) string {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return ""
	}
	pid := 0
	for range lockReadings {
		locks, err := os.ReadFile("/proc/locks")
		if err != nil {
			return ""
		}
		pid = lockedBy(string(locks), uint64(st.Dev), st.Ino) //nolint:unconvert // Dev is 32 bits wide on some machines
		if pid != 0 {
			break
		}
	}
	if pid == 0 {
		return ""
	}
	cmd, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(cmd) == 0 {
		return fmt.Sprintf("pid %d", pid)
	}
	words := bytes.ReplaceAll(bytes.TrimRight(cmd, "\x00"), []byte{0}, []byte{' '})
	return fmt.Sprintf("pid %d: %s", pid, words)
}

// lockedBy returns the PID of the holder of a lock in /proc/locks (proc_locks(5)), whose lines have the form "1: FLOCK
// ADVISORY WRITE 1234 fd:00:5678 0 EOF"; 0: there is none. A line with "->" is a waiting process.
func lockedBy(locks string, dev, inode uint64) int {
	want := fmt.Sprintf("%02x:%02x:%d", unix.Major(dev), unix.Minor(dev), inode)
	for line := range strings.Lines(locks) {
		f := strings.Fields(line)
		if len(f) < 6 || f[1] != "FLOCK" || f[5] != want {
			continue
		}
		if pid, err := strconv.Atoi(f[4]); err == nil && pid > 0 {
			return pid
		}
	}
	return 0
}

// Lock prevents other processes from opening or creating the state file at path, until the result is closed. It does
// not read the file.
func Lock(path string) (io.Closer, error) {
	dir, err := LockDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return dir, nil
	case err != nil:
		return nil, errors.Join(err, dir.Close())
	}
	if err := LockFile(f, unix.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close(), dir.Close())
	}
	return lockedFile{dir, f}, nil
}

type lockedFile struct{ dir, file *os.File }

func (h lockedFile) Close() error { return errors.Join(h.file.Close(), h.dir.Close()) }
