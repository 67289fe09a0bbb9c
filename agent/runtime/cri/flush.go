package cri

import (
	"os"
	"sync"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"monopod/apiserver/kit/guard"
)

// flusher writes the layers of new images to the disk. containerd unpacks them without fsync, but records them durably:
// after a power cut within the kernel's next 30 s or so, an image could consist of empty files permanently, since its
// layers are not unpacked again. containerd 2 has an option for that (image_pull_with_sync_fs), 1.6 has none.
type flusher struct {
	dir   string // on the file system to write; empty: another containerd's is none of our business
	sync  func(dir string) error
	log   *zap.Logger
	guard *guard.Guard
	wg    sync.WaitGroup

	mu    sync.Mutex // guards what follows
	busy  bool       // a goroutine writes
	again bool       // there is more since it began
}

// soon writes in the background, so that containers need not wait for the disk.
func (f *flusher) soon() {
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
	for f.more() {
		if err := f.sync(f.dir); err != nil {
			f.log.Warn("failed to write new images to the disk; a power cut may damage them", zap.Error(err))
		}
	}
}

func (f *flusher) more() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.busy, f.again = f.again, false
	return f.busy
}

// syncFS writes everything of a file system to the disk.
func syncFS(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return unix.Syncfs(int(d.Fd()))
}
