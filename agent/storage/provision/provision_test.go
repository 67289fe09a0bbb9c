package provision_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"monopod/agent/host/mount"
	"monopod/agent/storage/provision"
	"monopod/apiserver/kit/claim"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/registry"
	"monopod/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a running provisioner with an API in memory.
type node struct {
	client.Client
	*provision.Provisioner
	t    *testing.T
	dir  string
	stop func()
	logs *observer.ObservedLogs

	mu     sync.Mutex // guards the fields below
	events []string
	bound  []string
	busy   bool
	broken error
	cut    int // number of writes until the power cut; negative: no power cut
}

var errCut = errors.New("the power is off")

// Create, Update and Delete fail after the power cut.
func (n *node) Create(ctx context.Context, obj client.Object) (client.Object, error) {
	if n.off() {
		return nil, errCut
	}
	return n.Client.Create(ctx, obj)
}

func (n *node) Update(ctx context.Context, ref client.Ref, change client.Change) (client.Object, error) {
	if n.off() {
		return nil, errCut
	}
	return n.Client.Update(ctx, ref, change)
}

func (n *node) Delete(ctx context.Context, ref client.Ref, opts metav1.DeleteOptions) (client.Object, error) {
	if n.off() {
		return nil, errCut
	}
	return n.Client.Delete(ctx, ref, opts)
}

// off counts a write, and reports whether the power is off.
func (n *node) off() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut--
	if n.cut == -1 {
		n.cut = 0
		return true
	}
	return false
}

// within runs a test with a provisioner in virtual time.
func within(t *testing.T, test func(t *testing.T, n *node)) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "volumes")
	synctest.Test(t, func(t *testing.T) {
		resources := registry.Resources()
		s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
		t.Cleanup(func() { s.Close() })
		r := registry.New(s, resources, registry.Config{})
		if err := r.Bootstrap(t.Context()); err != nil {
			t.Fatal(err)
		}
		n := &node{Client: r, t: t, dir: dir, cut: -1}
		n.start()
		t.Cleanup(func() { n.stop() })
		test(t, n)
	})
}

func (n *node) start() {
	metrics, err := follow.NewMetrics(nil)
	if err != nil {
		n.t.Fatal(err)
	}
	core, logs := observer.New(zap.WarnLevel)
	n.logs = logs
	n.Provisioner = provision.New(provision.Deps{Client: n, Clock: clock.RealClock{}, Log: zap.New(core), Metrics: metrics,
		Event: n.event, Busy: n.isBusy, Bound: n.isBound, Remove: n.remove}, provision.Config{Dir: n.dir, Node: "n"})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- n.Run(ctx) }()
	n.stop = func() {
		cancel()
		if err := <-done; err != nil {
			n.t.Error(err)
		}
	}
}

func (n *node) event(_ client.Object, _, reason, _ string, _ ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = append(n.events, reason)
}

func (n *node) isBusy(string, string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.busy
}

func (n *node) isBound(string, claim string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.bound = append(n.bound, claim)
}

func (n *node) remove(path string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.broken != nil {
		return n.broken
	}
	return mount.RemoveAll(path, mount.Folders{})
}

// will changes the fields that mu guards.
func (n *node) will(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
}

func (n *node) hasEvent(reason string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Contains(n.events, reason)
}

func (n *node) create(objs ...client.Object) {
	n.t.Helper()
	for _, obj := range objs {
		if _, err := n.Client.Create(n.t.Context(), obj); err != nil {
			n.t.Fatal(err)
		}
	}
}

func newClass(policy corev1.PersistentVolumeReclaimPolicy) *storagev1.StorageClass {
	return &storagev1.StorageClass{TypeMeta: metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "StorageClass"},
		ObjectMeta:  metav1.ObjectMeta{Name: "folders"},
		Provisioner: claim.Provisioner, ReclaimPolicy: &policy, AllowVolumeExpansion: new(true)}
}

func newClaim(change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c", Annotations: map[string]string{
			claim.StorageProvisioner: claim.Provisioner}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: new("folders"),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("1Gi")}},
		},
	}
	for _, f := range change {
		f(c)
	}
	return c
}

// claimed returns the volume of the claim, or nil, and its folder.
func (n *node) claimed() (*corev1.PersistentVolume, string) {
	n.t.Helper()
	c, err := client.Get[*corev1.PersistentVolumeClaim](n.t.Context(), n, "default", "c")
	if err != nil {
		n.t.Fatal(err)
	}
	synctest.Wait()
	name := "pvc-" + string(c.UID)
	v, err := client.Get[*corev1.PersistentVolume](n.t.Context(), n, "", name)
	if err != nil && !apierrors.IsNotFound(err) {
		n.t.Fatal(err)
	}
	return v, filepath.Join(n.dir, name)
}

// phase writes the phase of the volume, like the binder.
func (n *node) phase(v *corev1.PersistentVolume, phase corev1.PersistentVolumePhase) {
	n.t.Helper()
	_, err := client.Update(n.t.Context(), n, v, "status",
		func(v *corev1.PersistentVolume) error { v.Status.Phase = phase; return nil })
	if err != nil {
		n.t.Fatal(err)
	}
	synctest.Wait()
}

// unprotect removes the finalizer for volume protection, like its controller.
func (n *node) unprotect(v *corev1.PersistentVolume) {
	n.t.Helper()
	_, err := client.Update(n.t.Context(), n, v, "", func(v *corev1.PersistentVolume) error {
		v.Finalizers = slices.DeleteFunc(v.Finalizers, func(f string) bool { return f == claim.VolumeProtection })
		return nil
	})
	if err != nil && !apierrors.IsNotFound(err) {
		n.t.Fatal(err)
	}
}

func (n *node) there(v *corev1.PersistentVolume) bool {
	_, err := client.Get[*corev1.PersistentVolume](n.t.Context(), n, "", v.Name)
	return err == nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func fill(t *testing.T, dir string) (outside string) {
	t.Helper()
	outside = filepath.Join(t.TempDir(), "precious")
	for _, path := range []string{dir + "/sub/file", outside + "/file"} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("data"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, dir+"/link"); err != nil {
		t.Fatal(err)
	}
	return outside
}

func TestFolderIsCreatedAndRemovedWithClaim(t *testing.T) {
	within(t, func(t *testing.T, n *node) {
		n.create(newClass(corev1.PersistentVolumeReclaimDelete), newClaim())
		v, dir := n.claimed()
		if v == nil {
			t.Fatal("no volume was created")
		}
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm() != 0o777 || v.Spec.Local.Path != dir {
			t.Fatalf("folder %v, error %v, volume at %s", info, err, v.Spec.Local.Path)
		}
		if !claim.UsableOn(v,
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{corev1.LabelHostname: "n"}}}) ||
			claim.UsableOn(v, &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{corev1.LabelHostname: "m"}}}) {
			t.Error("the volume must be usable only on this node")
		}
		outside := fill(t, dir)
		n.phase(v, corev1.VolumeBound)
		if !exists(dir) {
			t.Fatal("the folder of a bound volume was removed")
		}
		n.phase(v, corev1.VolumeReleased)
		n.unprotect(v)
		if exists(dir) || n.there(v) || !exists(outside+"/file") {
			t.Errorf("exists: folder %v, object %v, target of the link %v", exists(dir), n.there(v), exists(outside+"/file"))
		}
	})
}

func TestRetainKeepsTheData(t *testing.T) {
	within(t, func(t *testing.T, n *node) {
		n.create(newClass(corev1.PersistentVolumeReclaimRetain), newClaim())
		v, dir := n.claimed()
		n.phase(v, corev1.VolumeReleased)
		if !exists(dir) || !n.there(v) {
			t.Fatal("the folder was removed despite the policy Retain")
		}
		if _, err := client.Update(t.Context(), n, v, "", func(v *corev1.PersistentVolume) error {
			v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if exists(dir) {
			t.Error("the folder still exists after the change of the policy to Delete")
		}
	})
}

func TestDeletedVolumeWaitsForRemovalOfContent(t *testing.T) {
	within(t, func(t *testing.T, n *node) {
		n.create(newClass(corev1.PersistentVolumeReclaimDelete), newClaim())
		v, dir := n.claimed()
		n.phase(v, corev1.VolumeBound)
		n.will(func() { n.broken = errors.New("disk on fire") })
		if _, err := n.Delete(t.Context(), client.RefOf(v), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		n.unprotect(v)
		n.phase(v, corev1.VolumeReleased)
		if !n.there(v) || !n.hasEvent("VolumeFailedDelete") {
			t.Fatalf("the object was deleted before the folder, or there is no event: %v", n.events)
		}
		n.will(func() { n.broken, n.busy = nil, true })
		time.Sleep(time.Minute)
		synctest.Wait()
		if !exists(dir) {
			t.Fatal("the folder was removed although a pod uses it")
		}
		n.will(func() { n.busy = false })
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if exists(dir) || n.there(v) {
			t.Error("the removal was not retried")
		}
	})
}

func TestForeignVolumesAreKept(t *testing.T) {
	within(t, func(t *testing.T, n *node) {
		n.create(newClass(corev1.PersistentVolumeReclaimDelete), newClaim())
		v, dir := n.claimed()
		outside := fill(t, dir)
		for name, change := range map[string]func(*corev1.PersistentVolume){
			"elsewhere":    func(v *corev1.PersistentVolume) { v.Spec.Local.Path = outside },
			"above":        func(v *corev1.PersistentVolume) { v.Spec.Local.Path = filepath.Dir(n.dir) },
			"other-folder": func(v *corev1.PersistentVolume) { v.Spec.Local.Path = dir },
			"another-node": func(v *corev1.PersistentVolume) {
				v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0] = "m"
			},
		} {
			other := v.DeepCopy()
			other.ObjectMeta = metav1.ObjectMeta{Name: name, Annotations: v.Annotations}
			other.Spec.Local.Path = filepath.Join(n.dir, name)
			change(other)
			n.create(other)
			n.phase(other, corev1.VolumeReleased)
			if !n.there(other) {
				t.Errorf("%s was removed", name)
			}
		}
		if !exists(outside+"/file") || !exists(dir+"/sub/file") {
			t.Error("the content of another volume was removed")
		}
	})
}

func TestLinkInsteadOfFolderIsNotFollowed(t *testing.T) {
	within(t, func(t *testing.T, n *node) {
		n.create(newClass(corev1.PersistentVolumeReclaimDelete), newClaim())
		v, dir := n.claimed()
		outside := fill(t, dir)
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(outside, dir); err != nil {
			t.Fatal(err)
		}
		n.phase(v, corev1.VolumeReleased)
		if !exists(outside+"/file") || !n.hasEvent("VolumeFailedDelete") {
			t.Error("the removal followed a link, or there is no event")
		}
	})
}

func TestUnsupportedClaims(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*storagev1.StorageClass, *corev1.PersistentVolumeClaim){
		"block": func(_ *storagev1.StorageClass, c *corev1.PersistentVolumeClaim) {
			c.Spec.VolumeMode = new(corev1.PersistentVolumeBlock)
		},
		"selector": func(_ *storagev1.StorageClass, c *corev1.PersistentVolumeClaim) {
			c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		},
		"source": func(_ *storagev1.StorageClass, c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "x"}
		},
		"parameters": func(s *storagev1.StorageClass, _ *corev1.PersistentVolumeClaim) {
			s.Parameters = map[string]string{"a": "b"}
		},
		"options": func(s *storagev1.StorageClass, _ *corev1.PersistentVolumeClaim) { s.MountOptions = []string{"ro"} },
	} {
		t.Run(name, func(t *testing.T) {
			within(t, func(t *testing.T, n *node) {
				class, c := newClass(corev1.PersistentVolumeReclaimDelete), newClaim()
				change(class, c)
				n.create(class, c)
				if v, dir := n.claimed(); v != nil || exists(dir) || !n.hasEvent("ProvisioningFailed") {
					t.Errorf("volume exists %v, folder exists %v, events %v", v != nil, exists(dir), n.events)
				}
			})
		})
	}
}

func TestOtherNodesAndProvisionersAreIgnored(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*corev1.PersistentVolumeClaim){
		"node":          func(c *corev1.PersistentVolumeClaim) { c.Annotations[claim.SelectedNode] = "m" },
		"provisioner":   func(c *corev1.PersistentVolumeClaim) { c.Annotations[claim.StorageProvisioner] = "example.com/x" },
		"no annotation": func(c *corev1.PersistentVolumeClaim) { c.Annotations = nil },
		"bound":         func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "x" },
	} {
		t.Run(name, func(t *testing.T) {
			within(t, func(t *testing.T, n *node) {
				n.create(newClass(corev1.PersistentVolumeReclaimDelete), newClaim(change))
				if v, dir := n.claimed(); v != nil || exists(dir) {
					t.Error("a volume was created")
				}
			})
		})
	}
}

func TestVolumeExpands(t *testing.T) {
	within(t, func(t *testing.T, n *node) {
		n.create(newClass(corev1.PersistentVolumeReclaimDelete), newClaim())
		v, _ := n.claimed()
		c, err := client.Update(t.Context(), n, newClaim(), "",
			func(c *corev1.PersistentVolumeClaim) error { c.Spec.VolumeName = v.Name; return nil })
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Update(t.Context(), n, c, "status", func(c *corev1.PersistentVolumeClaim) error {
			c.Status.Phase, c.Status.Capacity = corev1.ClaimBound, corev1.ResourceList{"storage": resource.MustParse("1Gi")}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Update(t.Context(), n, c, "", func(c *corev1.PersistentVolumeClaim) error {
			c.Spec.Resources.Requests["storage"] = resource.MustParse("3Gi")
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		v, _ = n.claimed()
		c, _ = client.Get[*corev1.PersistentVolumeClaim](t.Context(), n, "default", "c")
		if has, is := c.Status.Capacity["storage"], v.Spec.Capacity["storage"]; has.String() != "3Gi" ||
			is.String() != "3Gi" {
			t.Errorf("claim has %s, volume %s", has.String(), is.String())
		}
		if n.will(func() {}); len(n.bound) == 0 || n.bound[0] != "c" {
			t.Errorf("bound: %v", n.bound)
		}
	})
}

func TestLeftovers(t *testing.T) {
	within(t, func(t *testing.T, n *node) {
		n.create(newClass(corev1.PersistentVolumeReclaimDelete), newClaim())
		v, _ := n.claimed()
		for _, name := range []string{"pvc-old", "pvc-made-for-u"} {
			if err := os.Mkdir(filepath.Join(n.dir, name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		waits := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "made-for-u"}}
		got, err := n.Leftovers([]*corev1.PersistentVolume{v}, []*corev1.PersistentVolumeClaim{waits})
		if err != nil || strings.Join(got, " ") != "pvc-old" {
			t.Errorf("Leftovers returned %v, error %v", got, err)
		}
		n.stop()
		n.start()
		synctest.Wait()
		logged := n.logs.FilterMessageSnippet("folders without a PersistentVolume").All()
		if len(logged) != 1 || fmt.Sprint(logged[0].ContextMap()["folders"]) != "[pvc-made-for-u pvc-old]" {
			t.Errorf("logged: %v", logged)
		}
	})
}

// After a power failure at any write, the next start continues to create or remove the volume.
func TestPowerCuts(t *testing.T) {
	t.Parallel()
	for cut := range 4 {
		t.Run(fmt.Sprint(cut), func(t *testing.T) {
			within(t, func(t *testing.T, n *node) {
				if _, err := n.Client.Create(t.Context(), newClass(corev1.PersistentVolumeReclaimDelete)); err != nil {
					t.Fatal(err)
				}
				if _, err := n.Client.Create(t.Context(), newClaim()); err != nil {
					t.Fatal(err)
				}
				restart := func() {
					n.stop()
					n.will(func() { n.cut = -1 })
					n.start()
				}
				n.will(func() { n.cut = cut })
				v, dir := n.claimed()
				if v == nil {
					restart()
					v, dir = n.claimed()
				}
				if v == nil || !exists(dir) {
					t.Fatal("no volume after the second start")
				}
				fill(t, dir)
				n.will(func() { n.cut = -1 })
				synctest.Wait()
				n.will(func() { n.cut = cut })
				if _, err := client.Update(t.Context(), n.Client, v, "status",
					func(v *corev1.PersistentVolume) error { v.Status.Phase = corev1.VolumeReleased; return nil }); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				restart()
				synctest.Wait()
				n.unprotect(v)
				if exists(dir) || n.there(v) {
					t.Errorf("folder exists %v, object exists %v", exists(dir), n.there(v))
				}
			})
		})
	}
}
