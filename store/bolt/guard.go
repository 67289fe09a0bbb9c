package bolt

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Guard watches the file with inotify until ctx ends. When another process removes, replaces or writes it, the state is
// written to a new file (see Config.Lost), with retries if that fails. It returns an error if the folder cannot be
// watched; then only the next write detects a loss.
func (d *DB) Guard(ctx context.Context) error {
	watch, err := watchFolder(d.place.dir())
	if err != nil {
		return fmt.Errorf("watch %s: %w", d.place.dir(), err)
	}
	changed := make(chan struct{}, 1)
	changed <- struct{}{} // the file may have changed before the watch began
	var running sync.WaitGroup
	running.Go(func() { watch.run(filepath.Base(d.place.path), changed) })
	defer func() { watch.close(); running.Wait() }()
	for {
		if err := d.repairAfter(ctx, changed); err != nil {
			return nil
		}
	}
}

// repairAfter waits for a change and retries the repair until the file is intact.
func (d *DB) repairAfter(ctx context.Context, changed <-chan struct{}) error {
	select {
	case <-changed:
	case <-ctx.Done():
		return ctx.Err()
	}
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		if _, err := d.Repair(ctx); err == nil {
			return nil
		}
		select {
		case <-changed:
		case <-d.place.cfg.Clock.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// folderWatch is an inotify watch of one folder.
type folderWatch struct{ events *os.File }

// watchMask selects changes of names in the folder, changes of the name of the folder, and the end of writes to files
// in it. This process keeps the state file open, so its own writes cause no event. The system call truncate does not
// open the file, so it also causes no event: the next write detects it.
const watchMask = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_CLOSE_WRITE |
	unix.IN_DELETE_SELF | unix.IN_MOVE_SELF

func watchFolder(dir string) (*folderWatch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	if _, err := unix.InotifyAddWatch(fd, dir, watchMask|unix.IN_ONLYDIR); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &folderWatch{os.NewFile(uintptr(fd), "inotify")}, nil
}

func (w *folderWatch) close() { w.events.Close() }

// run sends to changed, unless it is full, after every event of the file name, its log or the folder itself, until
// close.
func (w *folderWatch) run(name string, changed chan<- struct{}) {
	buf := make([]byte, 16<<10)
	for {
		n, err := w.events.Read(buf)
		if err != nil {
			return
		}
		if isAbout(buf[:n], name) {
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	}
}

// isAbout reports whether there is an event (inotify(7)) of the file name, of its log, or of the folder, whose events
// have no name.
func isAbout(events []byte, name string) bool {
	for len(events) >= unix.SizeofInotifyEvent {
		end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(events[unix.SizeofInotifyEvent-4:]))
		if end > len(events) {
			break
		}
		about := strings.TrimRight(string(events[unix.SizeofInotifyEvent:end]), "\x00")
		if about == "" || about == name || about == logOf(name) {
			return true
		}
		events = events[end:]
	}
	return false
}
