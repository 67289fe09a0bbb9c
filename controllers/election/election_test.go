package election

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"

	"monopod/apiserver/kit/client"
	"monopod/controllers/internal/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cut is a client that fails while lost is true.
type cut struct {
	client.Client
	lost atomic.Bool
}

var errLost = errors.New("no connection")

func (c *cut) Get(ctx context.Context, ref client.Ref) (client.Object, error) {
	if c.lost.Load() {
		return nil, errLost
	}
	return c.Client.Get(ctx, ref)
}

// process is a candidate that runs from start to stop.
type process struct {
	*Elector
	client *cut
	stop   func()
	terms  atomic.Int32
	works  atomic.Bool // its controllers run
}

// start runs a process. It fails the test if two processes lead at the same time.
func start(t *testing.T, api *apitest.API, name string, others *atomic.Int32) *process {
	t.Helper()
	p := &process{client: &cut{Client: api.Client}}
	var err error
	if p.Elector, err = New(Config{Client: p.client, Identity: name}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- p.Run(ctx, func(ctx context.Context) error {
			if others.Add(1) > 1 {
				t.Errorf("%s became leader while another process leads", name)
			}
			p.terms.Add(1)
			p.works.Store(true)
			<-ctx.Done()
			p.works.Store(false)
			others.Add(-1)
			return nil
		})
	}()
	stopped := false
	p.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(p.stop)
	synctest.Wait()
	return p
}

func holder(t *testing.T, api *apitest.API) *coordinationv1.LeaseSpec {
	t.Helper()
	l, ok := apitest.Get[*coordinationv1.Lease](api, Namespace, Name)
	if !ok {
		t.Fatal("the Lease does not exist")
	}
	return &l.Spec
}

func TestOneLeads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api, leaders := apitest.New(t), new(atomic.Int32)
		a := start(t, api, "a", leaders)
		b := start(t, api, "b", leaders)
		for range 10 {
			apitest.Settle(time.Minute)
			if !a.works.Load() || b.works.Load() || !a.Leading() || b.Leading() {
				t.Fatalf("a leads: %v, b leads: %v", a.works.Load(), b.works.Load())
			}
		}
		if s := holder(t, api); *s.HolderIdentity != "a" || *s.LeaseTransitions != 0 || a.terms.Load() != 1 {
			t.Errorf("lease %+v after %d terms", s, a.terms.Load())
		}
	})
}

// A leader that stops releases the lease, and another process acquires it at once.
func TestHandOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api, leaders := apitest.New(t), new(atomic.Int32)
		a := start(t, api, "a", leaders)
		b := start(t, api, "b", leaders)
		a.stop()
		apitest.Settle(5 * time.Second)
		if s := holder(t, api); !b.works.Load() || *s.HolderIdentity != "b" || *s.LeaseTransitions != 1 {
			t.Errorf("b leads: %v, lease %+v", b.works.Load(), s)
		}
	})
}

// A leader that cannot renew the lease stops leading before another process starts leading, and becomes a candidate.
func TestLostConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api, leaders := apitest.New(t), new(atomic.Int32)
		a := start(t, api, "a", leaders)
		b := start(t, api, "b", leaders)
		apitest.Settle(time.Minute)
		a.client.lost.Store(true)
		apitest.Settle(7 * time.Second)
		if !a.works.Load() {
			t.Error("a stopped leading before its deadline")
		}
		apitest.Settle(3 * time.Second)
		if a.works.Load() {
			t.Error("a leads although it has not renewed the lease for 10 s")
		}
		apitest.Settle(15 * time.Second)
		if !b.works.Load() {
			t.Error("b did not acquire the lease")
		}
		a.client.lost.Store(false)
		apitest.Settle(time.Minute)
		if a.works.Load() || !b.works.Load() {
			t.Errorf("a leads: %v, b leads: %v", a.works.Load(), b.works.Load())
		}
		b.stop()
		apitest.Settle(5 * time.Second)
		if a.terms.Load() != 2 {
			t.Errorf("a led %d times", a.terms.Load())
		}
	})
}

// A leader stops leading when another client changes the holder of the lease.
func TestTakenAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api, leaders := apitest.New(t), new(atomic.Int32)
		a := start(t, api, "a", leaders)
		apitest.Change(api, &coordinationv1.Lease{ObjectMeta: a.next(nil).ObjectMeta}, "", func(l *coordinationv1.Lease) {
			l.Spec.HolderIdentity = new("kube-controller-manager-0")
		})
		apitest.Settle(retryPeriod)
		if a.works.Load() {
			t.Error("a leads without the lease")
		}
		apitest.Settle(20 * time.Second) // nobody renews the lease
		if !a.works.Load() {
			t.Error("a did not acquire the expired lease")
		}
	})
}

func TestLeadFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, err := New(Config{Client: apitest.New(t).Client, Identity: "a"})
		if err != nil {
			t.Fatal(err)
		}
		err = e.Run(t.Context(), func(context.Context) error { return errors.New("broken") })
		if err == nil || !strings.Contains(err.Error(), "broken") {
			t.Errorf("got %v", err)
		}
	})
}
