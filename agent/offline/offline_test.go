package offline_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"monopod/agent/offline"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry"
	"monopod/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// servers is an API that can be away.
type servers struct {
	client.Client
	away  atomic.Bool
	asked atomic.Int32
}

func (s *servers) reach() error {
	s.asked.Add(1)
	if s.away.Load() {
		return fmt.Errorf("call: %w", &url.Error{Op: "Get", URL: "https://server", Err: errors.New("connection refused")})
	}
	return nil
}

func (s *servers) Get(ctx context.Context, ref client.Ref) (client.Object, error) {
	if err := s.reach(); err != nil {
		return nil, err
	}
	return s.Client.Get(ctx, ref)
}

func (s *servers) List(ctx context.Context, sel client.Selector) ([]client.Object, string, error) {
	if err := s.reach(); err != nil {
		return nil, "", err
	}
	return s.Client.List(ctx, sel)
}

func (s *servers) Update(ctx context.Context, ref client.Ref, change client.Change) (client.Object, error) {
	if ref.Subresource == "token" {
		next, err := change(&authenticationv1.TokenRequest{})
		if err = errors.Join(err, s.reach()); err != nil {
			return nil, err
		}
		issued := next.(*authenticationv1.TokenRequest)
		issued.Status.Token = "issued"
		return issued, nil
	}
	if err := s.reach(); err != nil {
		return nil, err
	}
	return s.Client.Update(ctx, ref, change)
}

// world is an API and a node's client of it.
type world struct {
	*testing.T
	api *servers
	dir string
}

func newWorld(t *testing.T) *world {
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	t.Cleanup(func() { s.Close() })
	r := registry.New(s, resources, registry.Config{})
	if err := r.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &world{t, &servers{Client: r}, t.TempDir()}
}

// node returns the client of a node that has just started.
func (w *world) node() *offline.Client {
	reg := w.api.Client.(*registry.Registry)
	c := offline.New(offline.Config{Servers: w.api, Dir: w.dir, Clock: clock.RealClock{}, Log: zaptest.NewLogger(w),
		New: func(gvr schema.GroupVersionResource, _ string) client.Object {
			res, err := reg.Resource(gvr)
			if err != nil {
				return nil
			}
			return res.New()
		}})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.Run(w.Context())
	}()
	w.Cleanup(func() { <-ended })
	return c
}

func (w *world) create(name, value string) {
	w.Helper()
	_, err := w.api.Client.Create(w.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"k": value},
	})
	if err != nil {
		w.Fatal(err)
	}
}

func named(name string) client.Selector {
	return client.Selector{Resource: client.ConfigMaps, Namespace: "default",
		Fields: fields.OneTermEqualSelector("metadata.name", name)}
}

// values returns the names and values of a list.
func (w *world) values(c client.Client, sel client.Selector) (string, string) {
	w.Helper()
	objs, revision, err := c.List(w.Context(), sel)
	if err != nil {
		return err.Error(), ""
	}
	var out []string
	for _, obj := range objs {
		out = append(out, obj.GetName()+"="+obj.(*corev1.ConfigMap).Data["k"])
	}
	slices.Sort(out)
	return strings.Join(out, " "), revision
}

// A node that starts while no server answers has what it last read: lists with their later changes, and objects.
func TestAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create("a", "1")
		w.create("b", "1")
		w.create("c", "1")
		all, one := client.Selector{Resource: client.ConfigMaps, Namespace: "default"}, client.Ref{
			Resource: client.ConfigMaps, Namespace: "default", Name: "c"}
		c := w.node()
		if _, err := c.Get(t.Context(), client.Ref{Resource: client.Namespaces, Name: "default"}); err != nil {
			t.Fatal(err)
		}
		_, revision := w.values(c, all)
		ctx, stop := context.WithCancel(t.Context())
		events, err := c.Watch(ctx, all, revision)
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Update(t.Context(), w.api.Client, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}, "", func(m *corev1.ConfigMap) error {
			m.Data = map[string]string{"k": "2"}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		ref := client.Ref{Resource: client.ConfigMaps, Namespace: "default", Name: "b"}
		if _, err := w.api.Client.Delete(t.Context(), ref, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, want := range []watch.EventType{watch.Modified, watch.Deleted} {
			if e := <-events; e.Type != want {
				t.Errorf("%s, want %s", e.Type, want)
			}
		}
		stop()
		for range events { // until it is closed
			continue
		}

		w.api.away.Store(true)
		c = w.node() // after a restart of the machine
		kept, revision := w.values(c, all)
		if kept != "a=2 c=1" {
			t.Errorf("kept: %q", kept)
		}
		if _, err := c.Get(t.Context(), client.Ref{Resource: client.Namespaces, Name: "default"}); err != nil {
			t.Error(err)
		}
		if _, err := c.Get(t.Context(), one); err != nil {
			t.Error(err)
		}
		if _, err := c.Get(t.Context(), ref); err == nil {
			t.Error("the deleted object is still there")
		}
		if says, _ := w.values(c, client.Selector{Resource: client.Secrets}); !strings.Contains(says, "connection refused") {
			t.Errorf("a list that was never read: %q", says)
		}

		// A watch from a kept list waits for a server, and then says that it must be listed again.
		ended := make(chan error, 1)
		go func() {
			_, err := c.Watch(t.Context(), all, revision)
			ended <- err
		}()
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("the watch ended while no server answers: %v", err)
		default:
		}
		w.api.away.Store(false)
		time.Sleep(time.Minute)
		w.values(c, all)
		if err := <-ended; !apierrors.IsResourceExpired(err) {
			t.Errorf("watch: %v", err)
		}
	})
}

// While no server answers, reads do not try one for each object: a pod with ten volumes would wait ten times.
func TestAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create("a", "1")
		c := w.node()
		w.values(c, named("a"))
		w.api.away.Store(true)
		w.api.asked.Store(0)
		for range 10 {
			if got, _ := w.values(c, named("a")); got != "a=1" {
				t.Error(got)
			}
		}
		if n := w.api.asked.Load(); n != 1 {
			t.Errorf("%d attempts", n)
		}
		w.api.away.Store(false)
		time.Sleep(61 * time.Second)
		if _, revision := w.values(c, named("a")); revision == client.CachedRevision {
			t.Error("no attempt after a minute")
		}
	})
}

// Tokens are kept for each pod and audience.
func TestTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ask := func(c client.Client, audience string) (string, error) {
		r, err := client.RequestToken(t.Context(), c, "default", "default",
			authenticationv1.TokenRequestSpec{Audiences: []string{audience}})
		if err != nil {
			return "", err
		}
		return r.Status.Token, nil
	}
	if token, err := ask(w.node(), "x"); token != "issued" || err != nil {
		t.Fatal(token, err)
	}
	w.api.away.Store(true)
	c := w.node()
	if token, err := ask(c, "x"); token != "issued" || err != nil {
		t.Errorf("%q, %v", token, err)
	}
	if token, err := ask(c, "y"); err == nil {
		t.Errorf("another audience: %q", token)
	}
}

// Errors of the API are not answered from disk: an object that is gone is gone.
func TestErrors(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create("a", "1")
	c := w.node()
	ref := client.Ref{Resource: client.ConfigMaps, Namespace: "default", Name: "a"}
	if _, err := c.Get(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Delete(t.Context(), ref, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(t.Context(), ref); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	w.api.away.Store(true)
	if _, err := w.node().Get(t.Context(), ref); err == nil {
		t.Error("the object is still kept")
	}
}

// The folder is readable only by its owner, keeps no lists that are not wanted any more, and survives damaged files.
func TestFiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create("a", "1")
	w.create("b", "1")
	c := w.node()
	w.values(c, named("a"))
	w.values(c, named("b"))
	var files []string
	err := filepath.WalkDir(w.dir, func(path string, d os.DirEntry, err error) error {
		info, _ := d.Info()
		if path != w.dir && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %s", path, info.Mode())
		}
		if strings.HasSuffix(path, "a.json") {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) != 1 {
		t.Fatal(err, files)
	}
	c.Retain(client.ConfigMaps, []client.Selector{named("a")})
	w.api.away.Store(true)
	if says, _ := w.values(w.node(), named("b")); !strings.Contains(says, "refused") {
		t.Errorf("b: %q", says)
	}
	before, err := os.Stat(files[0])
	if err != nil {
		t.Fatal(err)
	}
	w.api.away.Store(false)
	w.values(w.node(), named("a"))
	if after, err := os.Stat(files[0]); err != nil || !os.SameFile(before, after) {
		t.Error("an unchanged object was written again")
	}
	if err := os.WriteFile(files[0], []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.api.away.Store(true)
	if got, _ := w.values(w.node(), named("a")); got != "" {
		t.Errorf("with a damaged file: %q", got)
	}
}

// The pods of the whole cluster are not kept: without servers, such a list has those of this node.
func TestWholeCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, node := range []string{"own", "other"} {
		_, err := w.api.Client.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: node},
			Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	selecting := func(selector string) client.Selector {
		f, err := fields.ParseSelector(selector)
		if err != nil {
			t.Fatal(err)
		}
		return client.Selector{Resource: client.Pods, Fields: f}
	}
	own, others, all := selecting("spec.nodeName=own"), selecting("spec.nodeName!=own"), client.Selector{Resource: client.Pods}
	c := w.node()
	for _, sel := range []client.Selector{own, others, all} {
		if _, _, err := c.List(t.Context(), sel); err != nil {
			t.Fatal(err)
		}
	}
	w.api.away.Store(true)
	c = w.node()
	for name, want := range map[*client.Selector]int{&own: 1, &others: 0, &all: 1} {
		objs, _, err := c.List(t.Context(), *name)
		if err != nil || len(objs) != want {
			t.Errorf("%v: %d pods, %v, want %d", name.Fields, len(objs), err, want)
		}
	}
}

// What an object that does not exist was, is known without servers, too: an optional reference does not stop a pod.
func TestMissing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.node()
	w.values(c, named("absent"))
	w.api.away.Store(true)
	c = w.node()
	ref := client.Ref{Resource: client.ConfigMaps, Namespace: "default", Name: "absent"}
	if _, err := c.Get(t.Context(), ref); !apierrors.IsNotFound(err) {
		t.Errorf("an object that is followed: %v", err)
	}
	ref.Name = "unknown"
	if _, err := c.Get(t.Context(), ref); err == nil || apierrors.IsNotFound(err) {
		t.Errorf("an object that was never read: %v", err)
	}
}

// A list of a namespace is read from that of the whole resource, which a watch keeps up to date.
func TestNamespace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create("a", "1")
	c := w.node()
	all := client.Selector{Resource: client.ConfigMaps}
	of := client.Selector{Resource: client.ConfigMaps, Namespace: "default"}
	w.values(c, of)
	w.values(c, all)
	w.create("b", "1")
	w.values(c, all)
	w.api.away.Store(true)
	if got, _ := w.values(w.node(), of); got != "a=1 b=1" {
		t.Errorf("%q", got)
	}
	of.Namespace = "kube-system"
	if got, _ := w.values(w.node(), of); got != "" {
		t.Errorf("another namespace: %q", got)
	}
}

// After the pod network has become another one, Services are not followed any more, but those of a namespace are read when
// a container starts: they are newer.
func TestNamespaceThatIsNotFollowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	all := client.Selector{Resource: client.ConfigMaps}
	of := client.Selector{Resource: client.ConfigMaps, Namespace: "default"}
	without := func(c client.Client) string {
		w.api.away.Store(true)
		defer w.api.away.Store(false)
		got, _ := w.values(c, of)
		return got
	}
	w.create("a", "1")
	w.values(w.node(), all)
	w.create("b", "1")
	c := w.node()
	if got := without(w.node()); got != "a=1" {
		t.Errorf("before the next list: %q", got)
	}
	w.values(c, of)
	if got := without(w.node()); got != "a=1 b=1" {
		t.Errorf("not followed: %q", got)
	}
	w.create("c", "1")
	w.values(w.node(), all)
	if got := without(w.node()); got != "a=1 b=1 c=1" {
		t.Errorf("followed again: %q", got)
	}
}

// What pods need leaves the disk with them: tokens, and Secrets that were read one by one.
func TestPodsOfThePast(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create("a", "1")
	c := w.node()
	own := client.Selector{Resource: client.Pods, Fields: fields.OneTermEqualSelector("spec.nodeName", "own")}
	token := func(uid string) error {
		_, err := client.RequestToken(t.Context(), c, "default", "default", authenticationv1.TokenRequestSpec{
			BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", Name: "p", UID: types.UID(uid)}})
		return err
	}
	if err := token("gone"); err != nil {
		t.Fatal(err)
	}
	ref := client.Ref{Resource: client.ConfigMaps, Namespace: "default", Name: "a"}
	if _, err := c.Get(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.List(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	c.Retain(client.ConfigMaps, nil)
	w.api.away.Store(true)
	if err := token("gone"); err == nil {
		t.Error("the token of a pod that is gone is still there")
	}
	if _, err := c.Get(t.Context(), ref); err == nil {
		t.Error("an object that no pod uses is still there")
	}
}

// A token from the cache is requested again soon, whatever its life was.
func TestCachedTokenLife(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec := authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(3600))}
	c := w.node()
	if r, err := client.RequestToken(t.Context(), c, "default", "default", spec); err != nil ||
		*r.Spec.ExpirationSeconds != 3600 {
		t.Errorf("from the server: %v %v", r, err)
	}
	w.api.away.Store(true)
	if r, err := client.RequestToken(t.Context(), c, "default", "default", spec); err != nil ||
		*r.Spec.ExpirationSeconds != 60 || r.Status.Token != "issued" {
		t.Errorf("from the cache: %v %v", r, err)
	}
}
