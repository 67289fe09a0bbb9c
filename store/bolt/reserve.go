package bolt

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// reserveSize is the space that is reserved for deletions, in bytes: 256 pages, and as many for the checkpoint of a
// full log.
const reserveSize = 2 << 20

// reserve is a file of unused blocks. On a full disk, its removal frees space for deletions. Only one goroutine may use
// it at a time.
type reserve struct {
	path   string
	size   int64
	exists bool
}

// create creates the file unless it exists. After an error there is no file.
func (r *reserve) create() error {
	if r.exists || r.complete() {
		r.exists = true
		return nil
	}
	if err := r.fill(); err != nil {
		return errors.Join(err, removeIfThere(r.path))
	}
	r.exists = true
	return nil
}

// complete reports whether the file exists with all its blocks.
func (r *reserve) complete() bool {
	var st unix.Stat_t
	return unix.Stat(r.path, &st) == nil && st.Size == r.size && st.Blocks*512 >= r.size
}

func (r *reserve) fill() error {
	f, err := os.OpenFile(r.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	err = unix.Fallocate(int(f.Fd()), 0, 0, r.size)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		_, err = f.WriteAt(make([]byte, r.size), 0)
	}
	return errors.Join(err, f.Close())
}

// release frees the space. It returns false if there was none.
func (r *reserve) release() bool {
	if !r.exists {
		return false
	}
	r.exists = false
	return os.Remove(r.path) == nil
}
