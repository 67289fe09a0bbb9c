package cri

import (
	"os"
	"sync"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"monopod/apiserver/kit/guard"
)

// flusher syncs the layers of new images to the disk. containerd unpacks layers without fsync, but records durably that
// they are unpacked: after a power cut within the next 30 s or so, the files of an image could stay empty permanently.
// containerd 2 has an option for that (image_pull_with_sync_fs), 1.6 has none.
type flusher struct {
	dir   string // a folder on the file system to sync; empty for another containerd: nothing is synced
	sync  func(dir string) error
	log   *zap.Logger
	guard *guard.Guard
	wg    sync.WaitGroup

	mu    sync.Mutex // guards what follows
	busy  bool       // a goroutine syncs
	again bool       // images were added since it began
}

// schedule syncs in the background, so that containers do not wait for the disk.
func (f *flusher) schedule() {
	if f.dir == "" {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.again = true
	if !f.busy {
		f.busy = true
		f.guard.Go(&f.wg, "image flush", f.run)
	}
}

func (f *flusher) run() {
	for {
		f.mu.Lock()
		f.busy, f.again = f.again, false
		more := f.busy
		f.mu.Unlock()
		if !more {
			return
		}
		if err := f.sync(f.dir); err != nil {
			f.log.Warn("failed to sync new images to the disk; a power cut may damage them", zap.Error(err))
		}
	}
}

// syncFS syncs the file system that contains dir.
func syncFS(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return unix.Syncfs(int(d.Fd()))
}
