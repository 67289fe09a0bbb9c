package cri

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// New images are written in the background, one write at a time, and none is left out: what comes during a write is
// followed by one more.
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
			t.Errorf("%d writes, busy %v", writes, f.busy)
		}
		f.schedule()
		f.wg.Wait()
		if writes != 3 || logs.Len() != 1 {
			t.Errorf("%d writes, %d warnings", writes, logs.Len())
		}
		other := &flusher{sync: f.sync}
		other.schedule()
		other.wg.Wait()
		if writes != 3 {
			t.Error("the file system of another containerd is written")
		}
	})
}

func TestSyncFS(t *testing.T) {
	t.Parallel()
	if err := syncFS(t.TempDir()); err != nil {
		t.Error(err)
	}
	if err := syncFS("/none"); err == nil {
		t.Error("no error for a folder that does not exist")
	}
}
