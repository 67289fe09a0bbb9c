package logs

import (
	"context"

	"github.com/fsnotify/fsnotify"
)

// Inotify is a Notifier. Each watch ends with the first write, so that further writes cost nothing.
type Inotify struct {
	watcher *fsnotify.Watcher
	changed chan string
}

var _ Notifier = (*Inotify)(nil)

// NewInotify returns an Inotify without watches. Run closes it.
func NewInotify() (*Inotify, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	return &Inotify{watcher: watcher, changed: make(chan string)}, nil
}

// Changed implements Notifier.
func (n *Inotify) Changed() <-chan string { return n.changed }

// Arm implements Notifier.
func (n *Inotify) Arm(path string) error { return n.watcher.Add(path) }

// Disarm implements Notifier.
func (n *Inotify) Disarm(path string) {
	_ = n.watcher.Remove(path) // the file may be gone, and the watch with it
}

// Run implements Notifier.
func (n *Inotify) Run(ctx context.Context) {
	defer n.watcher.Close()
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.watcher.Errors: //nolint:errcheck // after an overflow the next periodic check finds the writes
		case ev := <-n.watcher.Events:
			if !ev.Has(fsnotify.Write) {
				continue
			}
			n.Disarm(ev.Name)
			select {
			case <-ctx.Done():
				return
			case n.changed <- ev.Name:
			}
		}
	}
}
