package etcd

import (
	"context"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"monopod/store"
)

// maxOps is the maximum number of operations in a transaction of etcd (its --max-txn-ops).
const maxOps = 128

// Count returns the number of objects of each resource.
func (s *Store) Count(ctx context.Context, resources []string) (map[string]int64, error) {
	counts := map[string]int64{}
	for some := range slices.Chunk(resources, maxOps) {
		if err := s.count(ctx, some, counts); err != nil {
			return nil, err
		}
	}
	return counts, nil
}

func (s *Store) count(ctx context.Context, resources []string, counts map[string]int64) error {
	ctx, done, err := s.request(ctx)
	if err != nil {
		return err
	}
	defer done()
	var ops []clientv3.Op
	for _, r := range resources {
		ops = append(ops, clientv3.OpGet(store.ResourcePath(r, ""), clientv3.WithPrefix(), clientv3.WithCountOnly()))
	}
	resp, err := s.client.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return translate(err)
	}
	for i, r := range resp.Responses {
		counts[resources[i]] = r.GetResponseRange().Count
	}
	return nil
}

// Size returns the size of the database in bytes, of the first etcd that answers.
func (s *Store) Size(ctx context.Context) (int64, error) {
	ctx, done, err := s.request(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	for _, endpoint := range s.client.Endpoints() {
		var status *clientv3.StatusResponse
		if status, err = s.client.Status(ctx, endpoint); err == nil {
			return status.DbSize, nil
		}
	}
	return 0, translate(err)
}
