package static_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"monopod/agent/source/static"
)

type noEvents struct{}

func (noEvents) Event(string, string, string, ...any) {}

// While the folder is unreadable, the desired static pods are unknown, so Source sends no list.
func TestFolderUnreadableAtTheStart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "manifests")
	if err := os.WriteFile(path, nil, 0o600); err != nil { // a file instead of a folder
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := static.NewSource(static.Deps{
			Clock: clock.RealClock{}, Log: zap.NewNop(), Node: noEvents{}, RestoreStatuses: func(context.Context,
				[]*corev1.Pod) {
			}, Failed: func(string) {},
			Notify: func(string) (<-chan struct{}, func(), error) { return nil, func() {}, nil },
		}, static.Config{Path: path, Node: "node1"})
		done := make(chan struct{})
		go func() {
			s.Run(ctx)
			close(done)
		}()
		select {
		case pods := <-s.Updates():
			t.Errorf("Source sent %v although the folder is unreadable", pods)
		case <-time.After(time.Minute):
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if pods := <-s.Updates(); len(pods) != 0 {
			t.Errorf("Source sent %v for a missing folder, want no pods", pods)
		}
		cancel()
		<-done
	})
}
