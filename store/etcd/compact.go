package etcd

import (
	"context"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// compactKey is the key with which kube-apiservers elect the one that compacts (upstream: storage/etcd3/compact.go):
// its version is the number of rounds, its value is the revision to which the next round compacts.
const compactKey = "compact_rev_key"

// round is a round of compaction.
type round struct {
	number int64 // the version of compactKey
	rev    int64 // the newest revision at its time
}

// compactor compacts, every interval, the history that is older than the interval. If several servers share an etcd,
// only one of them compacts.
func (s *Store) compactor(ctx context.Context) {
	if s.cfg.CompactionInterval < 0 {
		return
	}
	ticker := s.cfg.Clock.NewTicker(s.cfg.CompactionInterval)
	defer ticker.Stop()
	var last round
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		next, err := s.compactRound(ctx, last)
		if err != nil && ctx.Err() == nil {
			s.cfg.Log.Warn("failed to compact etcd's history", zap.Error(err))
			continue
		}
		last = next
	}
}

// compactRound compacts to the revision of the last round, unless another server has
// begun a round since.
func (s *Store) compactRound(ctx context.Context, last round) (round, error) {
	ctx, done, err := s.request(ctx)
	if err != nil {
		return last, err
	}
	defer done()
	resp, err := s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.Version(compactKey), "=", last.number)).
		Then(clientv3.OpPut(compactKey, strconv.FormatInt(last.rev, 10))).
		Else(clientv3.OpGet(compactKey)).
		Commit()
	if err != nil {
		return last, err
	}
	next := round{last.number + 1, resp.Header.Revision}
	if !resp.Succeeded {
		next.number = 0
		if kvs := resp.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
			next.number = kvs[0].Version
		}
		return next, nil
	}
	if last.rev == 0 {
		return next, nil
	}
	_, err = s.client.Compact(ctx, last.rev)
	return next, err
}

// Compact is for tests. It compacts the whole history of etcd.
func (s *Store) Compact(ctx context.Context) error {
	if err := s.ping(ctx); err != nil {
		return err
	}
	_, err := s.client.Compact(ctx, s.Revision())
	return err
}
