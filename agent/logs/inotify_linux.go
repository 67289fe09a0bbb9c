package logs

import (
	"context"
	"encoding/binary"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Inotify is a Notifier. Each watch ends with the first write, so that a busy file
// costs no more than one that is written to once.
type Inotify struct {
	fd      int
	file    *os.File // of fd; it is read in the poller, and closing it ends the read
	changed chan string

	mu    sync.Mutex // guards the maps, and fd once it may be closed
	over  bool
	paths map[int32]string
	armed map[string]int32
}

var _ Notifier = (*Inotify)(nil)

// NewInotify returns an Inotify without watches. Run closes it.
func NewInotify() (*Inotify, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	return &Inotify{
		fd: fd, file: os.NewFile(uintptr(fd), "inotify"), changed: make(chan string),
		paths: map[int32]string{}, armed: map[string]int32{},
	}, nil
}

// Changed implements Notifier.
func (n *Inotify) Changed() <-chan string { return n.changed }

// Arm implements Notifier.
func (n *Inotify) Arm(path string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.armed[path]; ok || n.over {
		return nil
	}
	wd, err := unix.InotifyAddWatch(n.fd, path, unix.IN_MODIFY|unix.IN_ONESHOT|unix.IN_DONT_FOLLOW)
	if err != nil {
		return &os.PathError{Op: "inotify_add_watch", Path: path, Err: err}
	}
	n.paths[int32(wd)], n.armed[path] = path, int32(wd)
	return nil
}

// Disarm implements Notifier.
func (n *Inotify) Disarm(path string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	wd, ok := n.armed[path]
	if !ok || n.over {
		return
	}
	_, _ = unix.InotifyRmWatch(n.fd, uint32(wd)) // its file may be gone, and the watch with it
	n.forget(wd)
}

// forget drops a watch and returns its path. The caller holds mu.
func (n *Inotify) forget(wd int32) string {
	path := n.paths[wd]
	delete(n.paths, wd)
	delete(n.armed, path)
	return path
}

// Run implements Notifier.
func (n *Inotify) Run(ctx context.Context) {
	defer context.AfterFunc(ctx, n.close)()
	buffer := make([]byte, 64*(unix.SizeofInotifyEvent+unix.NAME_MAX+1))
	for {
		size, err := n.file.Read(buffer)
		if err != nil {
			return // closed
		}
		for rest := buffer[:size]; len(rest) >= unix.SizeofInotifyEvent; {
			wd := int32(binary.NativeEndian.Uint32(rest))
			name := int(binary.NativeEndian.Uint32(rest[12:]))
			rest = rest[unix.SizeofInotifyEvent+name:]
			n.mu.Lock()
			path := n.forget(wd)
			n.mu.Unlock()
			if path == "" {
				continue // the end of a watch that has already fired
			}
			select {
			case <-ctx.Done():
				return
			case n.changed <- path:
			}
		}
	}
}

func (n *Inotify) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.over = true
	n.file.Close()
}
