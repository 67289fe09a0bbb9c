package job

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/controllers/internal/apitest"
)

// broken is a client that fails after a number of writes, as if the process had been killed.
type broken struct {
	client.Client
	left *atomic.Int64
}

var errKilled = errors.New("killed")

func killedBefore(c client.Client, write int) *broken {
	b := &broken{c, new(atomic.Int64)}
	b.left.Store(int64(write))
	return b
}

func (b *broken) alive() bool { return b.left.Add(-1) >= 0 }

func (b *broken) Update(ctx context.Context, ref client.Ref, change client.Change) (client.Object, error) {
	if !b.alive() {
		return nil, errKilled
	}
	return b.Client.Update(ctx, ref, change)
}

func (b *broken) Create(ctx context.Context, obj client.Object) (client.Object, error) {
	if !b.alive() {
		return nil, errKilled
	}
	return b.Client.Create(ctx, obj)
}

func (b *broken) Delete(ctx context.Context, ref client.Ref, opts metav1.DeleteOptions) (client.Object, error) {
	if !b.alive() {
		return nil, errKilled
	}
	return b.Client.Delete(ctx, ref, opts)
}

// If the process is killed before any of its writes, the restarted controller counts every pod once.
func TestKilledAtEachWrite(t *testing.T) {
	for name, mode := range map[string]func(*batchv1.Job){"NonIndexed": func(*batchv1.Job) {}, "Indexed": withIndexes} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for n := range 12 {
					api := apitest.New(t)
					c := cluster{api, t}
					ctx := t.Context()
					sync := func(to client.Client) {
						deps := api.Deps()
						deps.Client = to
						r := newRun(apitest.Must(New(deps, &api.Events, Config{})))
						for range 4 {
							_, _ = r.reconcile(ctx, follow.KeyOf(task()))
						}
					}
					api.Create(task(sized(3, 3), limited(9), mode))
					sync(killedBefore(api.Client, n))
					sync(api.Client)
					if got := len(c.running()); got != 3 {
						t.Fatalf("killed before write %d: %d pods", n, got)
					}
					c.end(0, corev1.PodFailed)
					sync(killedBefore(api.Client, n))
					sync(api.Client)
					if s := c.job().Status; s.Failed != 1 || s.Succeeded != 0 || len(s.UncountedTerminatedPods.Failed) != 0 {
						t.Fatalf("killed before write %d: %+v", n, s)
					}
					time.Sleep(time.Minute)
					sync(killedBefore(api.Client, n))
					sync(api.Client)
					for len(c.running()) > 0 {
						c.end(-1, corev1.PodSucceeded)
					}
					sync(killedBefore(api.Client, n))
					sync(api.Client)
					c.want(fmt.Sprintf("killed before write %d", n), map[string]string{
						"NonIndexed": "0 active, 3+1" + complete, "Indexed": "0 active, 3+1, done 0-2" + complete}[name])
					c.untracked()
				}
			})
		})
	}
}
