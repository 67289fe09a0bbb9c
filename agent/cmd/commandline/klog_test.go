package commandline

import (
	"errors"
	"fmt"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

// Log entries of libraries, including unhandled errors and panics, go to the logger of monopod.
func TestRedirectKlog(t *testing.T) { //nolint:paralleltest // klog has one logger per process
	core, logs := observer.New(zap.DebugLevel)
	RedirectKlog(zap.New(core))
	t.Cleanup(klog.ClearLogger)
	runtime.HandleError(errors.New("no stream"))
	klog.Background().WithName("part").WithValues("a", 1).Info("message", "b", 2)
	klog.V(5).Info("detail")
	func() {
		defer func() { _ = recover() }()
		defer runtime.HandleCrash()
		panic("boom")
	}()
	var got []string
	for _, e := range logs.All() {
		m := e.ContextMap()
		got = append(got, fmt.Sprint(e.Level, " ", e.LoggerName, " ", m["text"], " ", m["error"], " ", m["a"], m["b"]))
	}
	want := []string{"debug library.UnhandledError Unhandled Error no stream <nil> <nil>",
		"debug library.part message <nil> 12"}
	if len(got) != 3 || got[0] != want[0] || got[1] != want[1] || logs.All()[2].Level != zap.ErrorLevel {
		t.Errorf("log entries: %q", got)
	}
}
