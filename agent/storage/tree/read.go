package tree

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"monopod/agent/host/mount"
)

// Read reads the file at path of the volume at root, and fails if it has more than limit bytes. It reads nothing
// outside of the volume and opens only regular files, even if containers change the files meanwhile. It returns
// fs.ErrNotExist for a missing file.
func Read(root, path string, limit int64) ([]byte, error) {
	top, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(top)
	fd, err := openBeneath(top, path)
	if errors.Is(err, unix.EXDEV) {
		err = errors.New("it points outside the volume")
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	st, err := Stat(fd)
	if err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, errors.New("it is not a regular file")
	}
	f, err := os.Open(mount.Open(fd))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		return nil, fmt.Errorf("it contains more than %d bytes", limit)
	}
	return data, err
}
