package cri

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// The flusher syncs the file system in the background, one sync at a time. Images that arrive during a sync cause one
// more sync.
func TestFlusher(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.WarnLevel)
		writes := 0
		f := &flusher{dir: "/", log: zap.New(core), sync: func(string) error {
			writes++
			time.Sleep(time.Second)
			if writes == 3 {
				return errors.New("disk is gone")
			}
			return nil
		}}
		f.schedule()
		synctest.Wait()
		for range 5 {
			f.schedule()
		}
		f.wg.Wait()
		if writes != 2 || f.busy {
			t.Errorf("%d syncs, want 2; busy %v", writes, f.busy)
		}
		f.schedule()
		f.wg.Wait()
		if writes != 3 || logs.Len() != 1 {
			t.Errorf("%d syncs, want 3; %d warnings, want 1", writes, logs.Len())
		}
		other := &flusher{sync: f.sync}
		other.schedule()
		other.wg.Wait()
		if writes != 3 {
			t.Error("sync without a folder, as with another containerd")
		}
	})
}

func TestSyncFS(t *testing.T) {
	t.Parallel()
	if err := syncFS(t.TempDir()); err != nil {
		t.Error(err)
	}
	if err := syncFS("/none"); err == nil {
		t.Error("syncFS of a missing folder succeeded")
	}
}
