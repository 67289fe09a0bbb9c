package resourcequota

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/watch"

	"monopod/apiserver/kit/client"
)

// watching counts the open watches by resource.
type watching struct {
	client.Client

	mu   sync.Mutex // guards open
	open map[string]int
}

func (w *watching) Watch(ctx context.Context, sel client.Selector, resourceVersion string) (<-chan watch.Event, error) {
	w.add(sel.Resource.Resource, 1)
	context.AfterFunc(ctx, func() { w.add(sel.Resource.Resource, -1) })
	return w.Client.Watch(ctx, sel, resourceVersion)
}

func (w *watching) add(resource string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open[resource] += n; w.open[resource] == 0 {
		delete(w.open, resource)
	}
}

func (w *watching) want(t *testing.T, text string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(w.open)) {
		parts = append(parts, fmt.Sprintf("%s=%d", name, w.open[name]))
	}
	if got := strings.Join(parts, " "); got != text {
		t.Errorf("watches %s, want %s", got, text)
	}
}
