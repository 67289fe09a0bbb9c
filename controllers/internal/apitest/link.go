package apitest

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"monopod/apiserver/kit/client"
)

// Link is a client whose watches can be lost.
type Link struct {
	client.Client
	Unordered bool // the client does not know the order of changes, as with etcd

	mu   sync.Mutex // guards lose
	lose []context.CancelFunc
}

var _ client.Ordered = (*Link)(nil)

// Newest implements client.Ordered.
func (l *Link) Newest(resource schema.GroupVersionResource) (int64, bool) {
	newest, ok := l.Client.(client.Ordered).Newest(resource)
	return newest, ok && !l.Unordered
}

// Watch implements client.Client.
func (l *Link) Watch(ctx context.Context, sel client.Selector, rv string) (<-chan watch.Event, error) {
	ctx, cancel := context.WithCancel(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lose = append(l.lose, cancel)
	return l.Client.Watch(ctx, sel, rv)
}

// Cut ends all watches.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, lose := range l.lose {
		lose()
	}
	l.lose = nil
}
