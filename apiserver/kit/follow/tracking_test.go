package follow_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
)

// unordered is an API that does not know the order of changes, as with etcd. Its watches of pods lag, and a creation
// may return an error although the object was stored.
type unordered struct {
	client.Client
	late time.Duration
	fail error
}

func (u *unordered) Watch(ctx context.Context, sel client.Selector, rv string) (<-chan watch.Event, error) {
	events, err := u.Client.Watch(ctx, sel, rv)
	if err != nil || sel.Resource != client.Pods {
		return events, err
	}
	return delayed(ctx, events, func() bool { time.Sleep(u.late); return true }), nil
}

func (u *unordered) Create(ctx context.Context, obj client.Object) (client.Object, error) {
	created, err := u.Client.Create(ctx, obj)
	if u.fail != nil {
		return nil, u.fail
	}
	return created, err
}

// writing runs a loop over ReplicaSets. Each Reconcile sends to seen how many pods it knows, or late if a source may
// lag, and then calls write.
func writing(t *testing.T, c client.Client, pods fields.Selector, seen chan<- int64,
	write func(ctx context.Context, c client.Client) error) {
	c = follow.Tracking(c, clock.RealClock{})
	reconciling(t, c, pods, func(ctx context.Context, known int64) {
		if !follow.SeesOwnWrites(ctx) {
			known = late
		}
		seen <- known
		_ = write(ctx, c) // the loop does not depend on how a controller handles errors
	})
}

// wake changes the ReplicaSet.
func wake(t *testing.T, c client.Client, name string) {
	t.Helper()
	if _, err := client.Update(t.Context(), c, owner(name), "", func(o *appsv1.ReplicaSet) error {
		o.SetAnnotations(map[string]string{"at": time.Now().String()})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

// TestOwnWritesAreSeen: a key is not reconciled again before the sources have seen what it created, changed and
// deleted.
func TestOwnWritesAreSeen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api, seen := cluster(t), make(chan int64, 10)
		close(api.gate)
		c := &unordered{Client: api.Ordered, late: time.Second}
		steps := []func(ctx context.Context, c client.Client) error{
			func(ctx context.Context, c client.Client) error { _, err := c.Create(ctx, orphan("p")); return err },
			func(ctx context.Context, c client.Client) error {
				_, err := client.Update(ctx, c, orphan("p"), "",
					func(p *corev1.Pod) error { p.Labels["app"] = "other"; return nil })
				return err
			},
			func(ctx context.Context, c client.Client) error {
				_, err := c.Delete(ctx, client.RefOf(orphan("p")), metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
				return err
			},
			func(context.Context, client.Client) error { return nil },
		}
		writing(t, c, nil, seen, func(ctx context.Context, c client.Client) error {
			step := steps[0]
			steps = steps[1:]
			return step(ctx, c)
		})
		create(t, c, owner("web"))
		synctest.Wait()
		for step, want := range []int64{0, 1, 1, 0} {
			if len(seen) != 1 {
				t.Fatalf("step %d: reconciled %d times, want once", step, len(seen))
			}
			if got := <-seen; got != want {
				t.Errorf("step %d: %d pods known, want %d", step, got, want)
			}
			if step == 3 {
				break
			}
			if wake(t, c, "web"); len(seen) > 0 {
				t.Fatalf("step %d: the next Reconcile did not wait", step)
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
	})
}

// TestDoubtfulWrites: a Reconcile cannot rely on its sources for 5 minutes after a write with an unknown result. A
// refused write does not count.
func TestDoubtfulWrites(t *testing.T) {
	t.Parallel()
	refused := apierrors.NewForbidden(client.Pods.GroupResource(), "p", nil)
	for name, tc := range map[string]struct {
		fail error
		want int64 // known by the next Reconcile
	}{
		"refused":       {refused, 1},
		"server error":  {apierrors.NewInternalError(errors.New("etcd is gone")), late},
		"timeout":       {apierrors.NewTimeoutError("etcd is slow", 1), late},
		"not an answer": {context.DeadlineExceeded, late},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				api, seen := cluster(t), make(chan int64, 10)
				close(api.gate)
				c := &unordered{Client: api.Ordered}
				writing(t, c, nil, seen,
					func(ctx context.Context, c client.Client) error { _, err := c.Create(ctx, orphan("p")); return err })
				create(t, c, owner("web"))
				synctest.Wait()
				if got := <-seen; got != 0 {
					t.Errorf("%d pods known at first", got)
				}
				c.fail = tc.fail
				wake(t, c, "web") // creates again, and fails
				if got := <-seen; got != 1 {
					t.Errorf("%d pods known, want 1", got)
				}
				time.Sleep(4 * time.Minute)
				c.fail = refused
				wake(t, c, "web")
				if got := <-seen; got != tc.want {
					t.Errorf("%d pods known, want %d", got, tc.want)
				}
				time.Sleep(time.Minute)
				wake(t, c, "web")
				if got := <-seen; got != 1 {
					t.Error("the sources still count as incomplete")
				}
			})
		})
	}
}

// TestPartialSources: Reconcile does not wait for a write that the selector of a source excludes.
func TestPartialSources(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api, seen := cluster(t), make(chan int64, 10)
		close(api.gate)
		c := &unordered{Client: api.Ordered}
		writing(t, c, fields.OneTermEqualSelector("metadata.name", "other"), seen,
			func(ctx context.Context, c client.Client) error {
				_, err := c.Create(ctx, orphan("p"))
				return err
			})
		create(t, c, owner("web"))
		synctest.Wait()
		if wake(t, c, "web"); len(seen) != 2 || <-seen != 0 || <-seen != 0 {
			t.Error("not reconciled at once, or a source counts as incomplete")
		}
	})
}

// TestLateOwnWrites: Reconcile waits ten seconds for its own writes, and then runs without them.
func TestLateOwnWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api, seen := cluster(t), make(chan int64, 10)
		close(api.gate)
		c := &unordered{Client: api.Ordered, late: time.Hour}
		writing(t, c, nil, seen,
			func(ctx context.Context, c client.Client) error { _, err := c.Create(ctx, orphan("p")); return err })
		create(t, c, owner("web"))
		synctest.Wait()
		<-seen
		began := time.Now()
		wake(t, c, "web")
		if n := <-seen; n != late || time.Since(began) != 10*time.Second {
			t.Errorf("%d pods known after %v", n, time.Since(began))
		}
	})
}
