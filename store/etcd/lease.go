package etcd

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/utils/clock"
)

// Objects that are written within leaseSharing share a lease of etcd (upstream: storage/etcd3/lease_manager). A lease
// has at most leaseObjects, because etcd removes all objects of an expired lease in one transaction.
const (
	leaseSharing = time.Minute
	leaseObjects = 1000
)

// leases grants leases of etcd.
type leases struct {
	client *clientv3.Client
	clock  clock.PassiveClock

	mu   sync.Mutex // guards the fields below
	last map[time.Duration]*lease
}

type lease struct {
	id    clientv3.LeaseID
	until time.Time // end of sharing
	used  int       // number of objects
}

// grant returns a lease that expires after ttl and up to leaseSharing more.
func (l *leases) grant(ctx context.Context, ttl time.Duration) (clientv3.LeaseID, error) {
	if id, ok := l.shared(ttl); ok {
		return id, nil
	}
	until := l.clock.Now().Add(leaseSharing)
	resp, err := l.client.Grant(ctx, int64((ttl+leaseSharing)/time.Second))
	if err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == nil {
		l.last = map[time.Duration]*lease{}
	}
	l.last[ttl] = &lease{id: resp.ID, until: until, used: 1}
	return resp.ID, nil
}

// shared returns the last lease with the ttl if it may still be shared.
func (l *leases) shared(ttl time.Duration) (clientv3.LeaseID, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.last[ttl]
	if last == nil || last.used >= leaseObjects || !l.clock.Now().Before(last.until) {
		return 0, false
	}
	last.used++
	return last.id, true
}
