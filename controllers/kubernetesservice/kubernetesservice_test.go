package kubernetesservice

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/registry"
	"monopod/store"
)

// open returns a bootstrapped registry in memory.
func open(t *testing.T) *registry.Registry {
	t.Helper()
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	t.Cleanup(func() { s.Close() })
	r := registry.New(s, resources, registry.Config{})
	if err := r.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

func controller(t *testing.T, r *registry.Registry, at string) *Controller {
	t.Helper()
	metrics, err := follow.NewMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	return New(follow.Deps{Client: r, Clock: clock.RealClock{}, Log: zap.NewNop(), Metrics: metrics},
		Config{Server: func() (netip.AddrPort, error) { return netip.ParseAddrPort(at) },
			ClusterIP: netip.MustParseAddr("10.96.0.1")})
}

func TestPublish(t *testing.T) {
	t.Parallel()
	r := open(t)
	publish := func(at string) {
		t.Helper()
		if err := controller(t, r, at).publish(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	publish("127.0.0.1:6443")
	got, err := client.Get[*corev1.Service](t.Context(), r, "default", "kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	if got.Spec.ClusterIP != "10.96.0.1" || got.Spec.Ports[0].Port != 443 || got.Spec.Ports[0].Name != "https" ||
		got.Spec.Ports[0].TargetPort.IntValue() != 6443 {
		t.Errorf("got %+v", got.Spec)
	}
	if _, err := client.Get[*discoveryv1.EndpointSlice](t.Context(), r, "default", "kubernetes"); !apierrors.IsNotFound(
		err) {
		t.Errorf("get of the EndpointSlice for a loopback address: %v, want NotFound", err)
	}
	before := r.Revision()
	publish("127.0.0.1:6443")
	if r.Revision() != before {
		t.Error("publish without a change wrote")
	}
	for _, at := range []string{"192.0.2.7:6444", "[2001:db8::7]:6443"} {
		publish(at)
		before := r.Revision()
		publish(at)
		if r.Revision() != before {
			t.Errorf("%s: publish without a change wrote", at)
		}
		want := netip.MustParseAddrPort(at)
		slice, err := client.Get[*discoveryv1.EndpointSlice](t.Context(), r, "default", "kubernetes")
		if err != nil {
			t.Fatal(err)
		}
		endpoints, err := client.Get[*corev1.Endpoints](t.Context(), r, "default", "kubernetes")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.Addr().String(), slice.Endpoints[0].Addresses[0]); diff != "" ||
			slice.Labels[discoveryv1.LabelServiceName] != "kubernetes" {
			t.Errorf("%s: %+v", at, slice)
		}
		if subset := endpoints.Subsets[0]; subset.Addresses[0].IP != want.Addr().String() ||
			subset.Ports[0].Port != int32(want.Port()) {
			t.Errorf("%s: %+v", at, subset)
		}
	}
	publish("127.0.0.1:6443")
	if _, err := client.Get[*corev1.Endpoints](t.Context(), r, "default", "kubernetes"); !apierrors.IsNotFound(err) {
		t.Errorf("get of the Endpoints after the change to a loopback address: %v, want NotFound", err)
	}
}

// The controller recreates the Service when a client deletes it.
func TestKeepPublished(t *testing.T) {
	t.Parallel()
	r := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	ref := client.Ref{Resource: client.Services, Namespace: "default", Name: service}
	events, err := r.Watch(ctx, client.Selector{Resource: ref.Resource, Namespace: "default"}, fmt.Sprint(r.Revision()))
	if err != nil {
		t.Fatal(err)
	}
	wg.Go(func() {
		if err := controller(t, r, "127.0.0.1:6443").Run(ctx); err != nil {
			t.Error(err)
		}
	})
	for range 3 {
		if ev := <-events; ev.Type != watch.Added {
			t.Fatalf("got %+v", ev)
		}
		if _, err := r.Delete(ctx, ref, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if ev := <-events; ev.Type != watch.Deleted {
			t.Fatalf("got %+v", ev)
		}
	}
}

// The endpoints follow the address of the server. The controller recreates them when a client deletes them.
func TestFollowsTheAddress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := open(t)
		var at atomic.Value
		at.Store("192.0.2.7:6443")
		moved := make(chan struct{})
		c := controller(t, r, "")
		c.cfg.Server = func() (netip.AddrPort, error) { return netip.ParseAddrPort(at.Load().(string)) }
		c.cfg.Moved = []func(context.Context) <-chan struct{}{func(ctx context.Context) <-chan struct{} {
			context.AfterFunc(ctx, func() { close(moved) })
			return moved
		}}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		check := func(want string) {
			t.Helper()
			time.Sleep(2 * settleDelay)
			synctest.Wait()
			e, err := client.Get[*corev1.Endpoints](t.Context(), r, "default", service)
			if err != nil || e.Subsets[0].Addresses[0].IP != want {
				t.Errorf("%v, %+v, want %s", err, e, want)
			}
			slice, err := client.Get[*discoveryv1.EndpointSlice](t.Context(), r, "default", service)
			if err != nil || slice.Endpoints[0].Addresses[0] != want {
				t.Errorf("%v, %+v, want %s", err, slice, want)
			}
		}
		check("192.0.2.7")
		at.Store("192.0.2.8:6443")
		moved <- struct{}{}
		check("192.0.2.8")
		before := r.Revision()
		moved <- struct{}{}
		check("192.0.2.8")
		if r.Revision() != before {
			t.Error("the controller wrote although the address did not change")
		}
		for _, kind := range []schema.GroupVersionResource{client.Endpoints, client.EndpointSlices} {
			if _, err := r.Delete(t.Context(), client.Ref{Resource: kind, Namespace: "default", Name: service},
				metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			check("192.0.2.8")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Each of several servers is an endpoint until it stops; one whose Node does not report is not ready.
func TestSeveralServers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := open(t)
		run := func(node, at string) (stop func()) {
			c := controller(t, r, at)
			c.cfg.Node = node
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				if err := c.Run(ctx); err != nil {
					t.Error(err)
				}
			}()
			return func() { cancel(); <-done }
		}
		report := func(node string, status corev1.ConditionStatus) {
			_, err := client.Update(t.Context(), r, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, "status",
				func(n *corev1.Node) error {
					n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
					return nil
				})
			if err != nil {
				t.Fatal(err)
			}
		}
		expect := func(want string) {
			t.Helper()
			synctest.Wait()
			var got []string
			all, err := client.List[*discoveryv1.EndpointSlice](t.Context(), r, client.Selector{Namespace: "default"})
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range all {
				e := s.Endpoints[0]
				got = append(got, fmt.Sprint(e.Addresses[0], ":", *s.Ports[0].Port, " ", *e.Conditions.Ready))
			}
			slices.Sort(got)
			if text := strings.Join(got, ", "); text != want {
				t.Errorf("%s, want %s", text, want)
			}
		}
		for _, node := range []string{"a", "b", "c"} {
			if _, err := r.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := controller(t, r, "192.0.2.9:6443").publish(t.Context()); err != nil { // an earlier version
			t.Fatal(err)
		}
		stopA := run("a", "192.0.2.1:6443")
		stopB := run("b", "192.0.2.2:7443")
		stopC := run("c", "192.0.2.2:8443")
		expect("192.0.2.1:6443 true, 192.0.2.2:7443 true, 192.0.2.2:8443 true")
		report("b", corev1.ConditionFalse) // without a pod network, for instance
		report("c", corev1.ConditionUnknown)
		expect("192.0.2.1:6443 true, 192.0.2.2:7443 true, 192.0.2.2:8443 false")
		report("c", corev1.ConditionTrue)
		expect("192.0.2.1:6443 true, 192.0.2.2:7443 true, 192.0.2.2:8443 true")
		stopC()
		expect("192.0.2.1:6443 true, 192.0.2.2:7443 true")
		stopB()
		stopA()
		expect("")
	})
}
