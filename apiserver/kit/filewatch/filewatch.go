// Package filewatch watches a folder for files that appear and disappear. It uses inotify directly with a few
// kilobytes, where fsnotify takes more than a hundred for each folder.
package filewatch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Change is a change in a folder.
type Change struct {
	Path string
	Gone bool // otherwise the file appeared, perhaps incomplete
	// changes were lost: read the whole folder again. Path is empty.
	Lost bool
}

// Folder is a watched folder.
type Folder struct {
	dir  string
	file *os.File // the inotify queue
	buf  [4096]byte
}

// Watch starts watching. The folder must exist; subfolders are not watched.
func Watch(dir string) (*Folder, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", dir, err)
	}
	f := &Folder{dir: dir, file: os.NewFile(uintptr(fd), "inotify")}
	const appears, disappears = unix.IN_CREATE | unix.IN_MOVED_TO, unix.IN_DELETE | unix.IN_MOVED_FROM
	if _, err := unix.InotifyAddWatch(fd, dir, appears|disappears|unix.IN_ONLYDIR); err != nil {
		return nil, errors.Join(fmt.Errorf("watch %s: %w", dir, err), f.Close())
	}
	return f, nil
}

// Close also ends Next.
func (f *Folder) Close() error { return f.file.Close() }

// Next waits for changes and returns them in order. It fails when the folder is closed or removed.
func (f *Folder) Next() ([]Change, error) {
	for {
		n, err := f.file.Read(f.buf[:])
		if err != nil {
			return nil, err
		}
		out, err := f.parse(f.buf[:n])
		if err != nil || len(out) > 0 {
			return out, err
		}
	}
}

// parse decodes inotify events: four numbers, and a name padded with zeros.
func (f *Folder) parse(b []byte) ([]Change, error) {
	var out []Change
	for len(b) >= unix.SizeofInotifyEvent {
		mask, length := binary.NativeEndian.Uint32(b[4:]), int(binary.NativeEndian.Uint32(b[12:]))
		name := b[unix.SizeofInotifyEvent:][:length]
		b = b[unix.SizeofInotifyEvent+length:]
		switch {
		case mask&unix.IN_IGNORED != 0:
			return out, fmt.Errorf("watch %s: %w", f.dir, os.ErrNotExist)
		case mask&unix.IN_Q_OVERFLOW != 0:
			out = append(out, Change{Lost: true})
		default:
			gone := mask&(unix.IN_DELETE|unix.IN_MOVED_FROM) != 0
			out = append(out, Change{Path: filepath.Join(f.dir, string(bytes.TrimRight(name, "\x00"))), Gone: gone})
		}
	}
	return out, nil
}
