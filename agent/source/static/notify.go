package static

import (
	"errors"

	"github.com/fsnotify/fsnotify"

	"monopod/apiserver/kit/guard"
)

// Notify watches a folder until stop is called. changed receives a value after a manifest in the folder was created,
// written, renamed or removed.
func Notify(dir string) (changed <-chan struct{}, stop func(), err error) {
	watch, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, nil, err
	}
	if err := watch.Add(dir); err != nil {
		return nil, nil, errors.Join(err, watch.Close())
	}
	news := make(chan struct{}, 1)
	var reader guard.Group
	reader.Do(func() error { relay(watch, news); return nil })
	return news, func() {
		_ = watch.Close()
		guard.Raise(reader.Wait())
	}, nil
}

// relay sends to news for each change until the watch is closed. A lost event counts as a change.
func relay(watch *fsnotify.Watcher, news chan<- struct{}) {
	for {
		select {
		case ev, open := <-watch.Events:
			if !open {
				return
			}
			if !Manifest(ev.Name) {
				continue
			}
		case _, open := <-watch.Errors:
			if !open {
				return
			}
		}
		select {
		case news <- struct{}{}:
		default:
		}
	}
}
