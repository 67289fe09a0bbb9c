package csi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/agent/resources/plugins"
	"monopod/apiserver/kit/client"
)

func TestTwoPodsShareStagedVolume(t *testing.T) {
	in(t, unattached, func(w *world, m *Manager) {
		w.setUp(m, w.volume("a"))
		w.expect("stage publish")
		w.setUp(m, w.volume("a"))
		w.expect("")
		w.setUp(m, w.volume("b"))
		w.expect("publish")
		if u, ok, err := m.Usage(w.Context(), m.target(new(w.volume("a")))); err != nil || !ok || u.Bytes.Used != 3 ||
			u.Abnormal == nil || !*u.Abnormal {
			w.Errorf("usage %+v, %v, %v", u, ok, err)
		}
		w.tearDown(m, "a")
		w.expect("unpublish")
		w.tearDown(m, "b")
		w.expect("unpublish unstage")
		w.expectNothingLeft()
	})
}

// After a panic in one of its goroutines a new loop does the work, also what was woken meanwhile.
func TestLoopAfterPanic(t *testing.T) {
	in(t, unattached, func(w *world, m *Manager) {
		w.setUp(m, w.volume("a"))
		w.mu.Lock()
		w.panics = true
		w.mu.Unlock()
		if _, err := client.Update(w.Context(), w.Client, w.node(), "status", func(n *corev1.Node) error {
			n.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "other"}}
			return nil
		}); err != nil {
			w.Fatal(err)
		}
		synctest.Wait()
		w.mu.Lock()
		panicked := !w.panics
		w.mu.Unlock()
		if !panicked {
			w.Fatal("nothing panicked")
		}
		w.tearDown(m, "a")
		time.Sleep(time.Minute)
		synctest.Wait()
		w.expect("stage publish unpublish unstage")
		w.expectNothingLeft()
	})
}

func TestDriverIsRegistered(t *testing.T) {
	in(t, unattached, func(w *world, m *Manager) {
		read := func() (*storagev1.CSINode, *corev1.Node) {
			synctest.Wait()
			n, err := client.Get[*storagev1.CSINode](w.Context(), w.Client, "", "n")
			if err != nil {
				w.Fatal(err)
			}
			return n, w.node()
		}
		info, node := read()
		if d := info.Spec.Drivers; len(d) != 1 || d[0].Name != hostpath || d[0].NodeID != "node-1" ||
			*d[0].Allocatable.Count != 7 || !slices.Equal(d[0].TopologyKeys, []string{"topology.hostpath.csi/node"}) {
			w.Errorf("CSINode %+v", d)
		}
		if len(info.OwnerReferences) != 1 || info.OwnerReferences[0].UID != node.UID ||
			node.Labels["topology.hostpath.csi/node"] != "n" || node.Annotations[nodeIDs] != `{"`+hostpath+`":"node-1"}` {
			w.Errorf("owners %v, labels %v, annotations %v", info.OwnerReferences, node.Labels, node.Annotations)
		}
		w.pull()
		info, node = read()
		if len(info.Spec.Drivers) != 0 || node.Annotations[nodeIDs] != "" {
			w.Errorf("after its end: %v, %v", info.Spec.Drivers, node.Annotations)
		}
		w.plug(m)
		w.pull()
		w.plug(m)
		w.stop() // the process stops, but not the driver
		w.pull()
		if info, _ = read(); len(info.Spec.Drivers) != 1 {
			w.Error("the end of the process has removed the driver")
		}
		if err := m.Welcome(w.Context(), w.Context(),
			plugins.Plugin{Name: hostpath, Versions: []string{"0.3.0"}}); err == nil {
			w.Error("version 0.3 was accepted")
		}
	})
}

func TestDriverIsThereBeforeNode(t *testing.T) {
	in(t, unattached, func(w *world, m *Manager) {
		w.pull()
		if _, err := w.Client.Delete(w.Context(), client.RefOf(w.node()), metav1.DeleteOptions{}); err != nil {
			w.Fatal(err)
		}
		time.AfterFunc(3*time.Second, func() {
			w.create(&corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
				ObjectMeta: metav1.ObjectMeta{Name: "n"}})
		})
		w.plug(m)
		n, err := client.Get[*storagev1.CSINode](w.Context(), w.Client, "", "n")
		if err != nil || len(n.Spec.Drivers) != 1 {
			w.Errorf("%+v, %v", n, err)
		}
	})
}

func TestLimitIsUpdated(t *testing.T) {
	spec := unattached
	spec.NodeAllocatableUpdatePeriodSeconds = new(int64(10))
	in(t, spec, func(w *world, m *Manager) {
		w.limit.Store(5)
		time.Sleep(11 * time.Second)
		synctest.Wait()
		n, err := client.Get[*storagev1.CSINode](w.Context(), w.Client, "", "n")
		if err != nil || len(n.Spec.Drivers) != 1 || *n.Spec.Drivers[0].Allocatable.Count != 5 {
			w.Errorf("%+v, %v", n, err)
		}
	})
}

func TestVolumeWaitsForItsAttachment(t *testing.T) {
	in(t, storagev1.CSIDriverSpec{}, func(w *world, m *Manager) {
		v := w.volume("a")
		if _, err := m.SetUp(w.Context(), v); !errors.Is(err, ErrAttaching) {
			w.Fatal(err)
		}
		unique := v.id().unique()
		if used := w.node().Status.VolumesInUse; !slices.Equal(used, []corev1.UniqueVolumeName{unique}) {
			w.Errorf("in use: %v", used)
		}
		a := &storagev1.VolumeAttachment{
			TypeMeta:   metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "VolumeAttachment"},
			ObjectMeta: metav1.ObjectMeta{Name: v.id().attachment("n")},
			Spec: storagev1.VolumeAttachmentSpec{Attacher: hostpath, NodeName: "n",
				Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new("pv")}}}
		w.create(a)
		answer := func(change func(*storagev1.VolumeAttachmentStatus)) {
			if _, err := client.Update(w.Context(), w.Client, a, "status", func(a *storagev1.VolumeAttachment) error {
				change(&a.Status)
				return nil
			}); err != nil {
				w.Fatal(err)
			}
		}
		answer(func(s *storagev1.VolumeAttachmentStatus) {
			s.AttachError = &storagev1.VolumeError{Message: "no such disk"}
		})
		if _, err := m.SetUp(w.Context(), v); !errors.Is(err, ErrAttaching) || !strings.Contains(err.Error(),
			"no such disk") {
			w.Error(err)
		}
		answer(func(s *storagev1.VolumeAttachmentStatus) {
			*s = storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: map[string]string{"lun": "3"}}
		})
		if _, err := m.SetUp(w.Context(), v); !errors.Is(err, ErrAttaching) {
			w.Errorf("used before the controller has listed it: %v", err)
		}
		woken := w.changed
		if _, err := client.Update(w.Context(), w.Client, w.node(), "status", func(n *corev1.Node) error {
			n.Status.VolumesAttached = []corev1.AttachedVolume{{Name: unique, DevicePath: a.Name}}
			return nil
		}); err != nil {
			w.Fatal(err)
		}
		if synctest.Wait(); w.changed != woken+1 {
			w.Error("the pods were not woken")
		}
		w.setUp(m, v)
		w.expect("stage publish")
		if w.last.PublishContext["lun"] != "3" {
			w.Errorf("publish context %v", w.last.PublishContext)
		}
		w.tearDown(m, "a")
		if used := w.node().Status.VolumesInUse; len(used) != 0 {
			w.Errorf("still in use: %v", used)
		}
		w.expectNothingLeft()
	})
}

// Without staging, only the records of pods show that a volume is attached, and so in use.
func TestAttachedVolumeIsInUseAfterRestart(t *testing.T) {
	in(t, storagev1.CSIDriverSpec{}, func(w *world, _ *Manager) {
		w.can = nil
		m := w.restart()
		v := w.volume("a")
		w.create(&storagev1.VolumeAttachment{
			TypeMeta:   metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "VolumeAttachment"},
			ObjectMeta: metav1.ObjectMeta{Name: v.id().attachment("n")},
			Spec: storagev1.VolumeAttachmentSpec{Attacher: hostpath, NodeName: "n",
				Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new("pv")}}})
		a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: v.id().attachment("n")}}
		if _, err := client.Update(w.Context(), w.Client, a, "status", func(a *storagev1.VolumeAttachment) error {
			a.Status.Attached = true // without attachment metadata
			return nil
		}); err != nil {
			w.Fatal(err)
		}
		if _, err := client.Update(w.Context(), w.Client, w.node(), "status", func(n *corev1.Node) error {
			n.Status.VolumesAttached = []corev1.AttachedVolume{{Name: v.id().unique(), DevicePath: a.Name}}
			return nil
		}); err != nil {
			w.Fatal(err)
		}
		w.setUp(m, v)
		w.expect("publish")
		w.restart()
		synctest.Wait()
		if used := w.node().Status.VolumesInUse; !slices.Equal(used, []corev1.UniqueVolumeName{v.id().unique()}) {
			w.Errorf("volumes in use after the restart: %v", used)
		}
	})
}

// If the process is killed before or after any call of the driver, the next process cleans up completely.
func TestKilledAtEveryCall(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"before", "after"} {
		for n := 1; n <= 4; n++ {
			t.Run(fmt.Sprint(when, n), func(t *testing.T) {
				in(t, unattached, func(w *world, m *Manager) {
					var left atomic.Int32
					left.Store(int32(n))
					cut := func(string) error {
						if left.Add(-1) == 0 {
							return status.Error(codes.Unavailable, "killed")
						}
						return nil
					}
					w.before, w.after = cut, nil
					if when == "after" {
						w.before, w.after = nil, cut
					}
					if _, err := m.SetUp(w.Context(), w.volume("a")); err != nil {
						m = w.restart()
						w.setUp(m, w.volume("a"))
					}
					if len(w.mounts) != 2 {
						w.Errorf("mounted: %v", w.mounts)
					}
					if err := m.TearDown(w.Context(), filepath.Join(w.dir, "pods", "a")); err != nil {
						m = w.restart()
						w.tearDown(m, "a")
					}
					time.Sleep(time.Minute) // for retries
					if left.Load() > 0 {
						w.Errorf("%d calls were not made", left.Load())
					}
					w.expectNothingLeft()
				})
			})
		}
	}
}

// The files get the group of the pod even if the process is killed after the driver has mounted the volume.
func TestGroupAfterKill(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("skipped: only root can change the group of files")
	}
	spec := unattached
	spec.FSGroupPolicy = new(storagev1.FileFSGroupPolicy)
	in(t, spec, func(w *world, m *Manager) {
		v := w.volume("a")
		v.Pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: new(int64(4000))}
		w.after = func(call string) error {
			if call == "publish" {
				return status.Error(codes.Unavailable, "killed")
			}
			return nil
		}
		if _, err := m.SetUp(w.Context(), v); err == nil {
			w.Error("the failure was not reported")
		}
		path := w.setUp(w.restart(), v)
		w.expect("stage publish")
		if info, err := os.Stat(path); err != nil || info.Sys().(*syscall.Stat_t).Gid != 4000 {
			w.Errorf("the folder is %v, error %v, want the group 4000", info, err)
		}
	})
}

func TestSELinuxLabel(t *testing.T) {
	spec := unattached
	spec.SELinuxMount = new(true)
	in(t, spec, func(w *world, m *Manager) {
		for _, mode := range []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod, corev1.ReadWriteOnce} {
			v := w.volume(strings.ToLower(string(mode)), func(pv *corev1.PersistentVolume) {
				pv.Spec.AccessModes, pv.Spec.MountOptions = []corev1.PersistentVolumeAccessMode{mode}, []string{"noatime"}
			})
			v.Pod.Spec.SecurityContext = &corev1.PodSecurityContext{
				SELinuxOptions: &corev1.SELinuxOptions{Level: "s0:c0,c1"}}
			w.setUp(m, v)
			want := []string{"noatime"}
			if mode == corev1.ReadWriteOncePod {
				want = append(want, `context="system_u:object_r:container_file_t:s0:c0,c1"`)
			}
			if got := w.last.VolumeCapability.GetMount().MountFlags; !slices.Equal(got, want) {
				w.Errorf("%s: %q, want %q", mode, got, want)
			}
		}
	})
}

func TestMountedVolumeIsFoundAfterRestart(t *testing.T) {
	in(t, unattached, func(w *world, m *Manager) {
		w.setUp(m, w.volume("a"))
		w.expect("stage publish")
		m = w.restart()
		w.setUp(m, w.volume("a"))
		w.expect("")
		w.boot = "2"
		clear(w.mounts)
		m = w.restart()
		w.setUp(m, w.volume("a"))
		w.expect("stage publish")
		w.tearDown(m, "a")
		w.expectNothingLeft()
	})
}

func TestWithoutDriver(t *testing.T) {
	in(t, unattached, func(w *world, m *Manager) {
		w.setUp(m, w.volume("a"))
		w.pull()
		missing := (*ErrNoDriver)(nil)
		if _, err := m.SetUp(w.Context(), w.volume("b")); !errors.As(err, &missing) || missing.Driver != hostpath {
			w.Error(err)
		}
		w.setUp(m, w.volume("a")) // already mounted, so it needs no driver
		gone := filepath.Join(w.dir, "pods", "a")
		if err := m.TearDown(w.Context(), gone); !errors.As(err, &missing) {
			w.Errorf("TearDown of a mounted volume without the driver: %v", err)
		}
		w.stop()
		w.boot = "2" // a reboot: no mounts
		clear(w.mounts)
		m = w.start()
		w.tearDown(m, "a")
		w.expectNothingLeft()
	})
}

func TestHangingCallBlocksOnlyItsVolume(t *testing.T) {
	in(t, unattached, func(w *world, m *Manager) {
		release := make(chan struct{})
		w.before = func(string) error {
			<-release
			return nil
		}
		done := make(chan error)
		go func() {
			_, err := m.SetUp(w.Context(), w.volume("a"))
			done <- err
		}()
		synctest.Wait()
		w.before = nil
		w.setUp(m, w.volume("b", func(pv *corev1.PersistentVolume) { pv.Spec.CSI.VolumeHandle = "other" }))
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		if _, err := m.SetUp(ctx, w.volume("c")); !errors.Is(err, context.DeadlineExceeded) {
			w.Error(err)
		}
		if err := <-done; status.Code(err) != codes.DeadlineExceeded {
			w.Errorf("the hanging call returned %v", err)
		}
		close(release)
	})
}

func TestRepublishedWithTokens(t *testing.T) {
	spec := unattached
	spec.RequiresRepublish, spec.PodInfoOnMount = new(true), new(true)
	spec.TokenRequests = []storagev1.TokenRequest{{Audience: "vault"}}
	in(t, spec, func(w *world, m *Manager) {
		w.setUp(m, w.volume("a"))
		w.expect("stage publish")
		if m.Due("a") || m.Due("b") {
			w.Error("due at once")
		}
		for name, want := range map[string]string{"a": "b", "csi.storage.k8s.io/pod.name": "a",
			"csi.storage.k8s.io/ephemeral": "false", "csi.storage.k8s.io/serviceAccount.tokens": `{"vault":{"token":` +
				`"token of a for vault","expirationTimestamp":"1970-01-01T00:00:01Z"}}`} {
			if got := w.last.VolumeContext[name]; got != want {
				w.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		time.Sleep(time.Minute)
		if !m.Due("a") {
			w.Error("not due after a minute")
		}
		w.setUp(m, w.volume("a"))
		w.expect("publish")
		if m.Due("a") {
			w.Error("due after it was published")
		}
		w.tearDown(m, "a")
	})
}

func TestInlineVolume(t *testing.T) {
	spec := unattached
	spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}
	in(t, spec, func(w *world, m *Manager) {
		w.setUp(m, w.inline("a"))
		w.expect("publish")
		w.tearDown(m, "a")
		w.expect("unpublish")
		w.expectNothingLeft()
		if _, err := m.SetUp(w.Context(), w.volume("b")); err == nil {
			w.Error("a PersistentVolume of a driver of inline volumes was published")
		}
	})
}

func TestInlineVolumeNeedsDriverThatAllowsIt(t *testing.T) {
	in(t, unattached, func(w *world, m *Manager) {
		if _, err := m.SetUp(w.Context(), w.inline("a")); err == nil ||
			!strings.Contains(err.Error(), `volume mode "Ephemeral" not supported`) {
			w.Error(err)
		}
	})
}

func TestBlockVolume(t *testing.T) {
	in(t, unattached, func(w *world, m *Manager) {
		block := func(pv *corev1.PersistentVolume) { pv.Spec.VolumeMode = new(corev1.PersistentVolumeBlock) }
		path := w.setUp(m, w.volume("a", block))
		if info, err := os.Stat(path); err != nil || info.IsDir() || w.last.VolumeCapability.GetBlock() == nil {
			w.Errorf("%v, %v", info, err)
		}
		m = w.restart()
		w.setUp(m, w.volume("a", block))
		w.tearDown(m, "a")
		w.expectNothingLeft()
	})
}

func TestExpansion(t *testing.T) {
	in(t, unattached, func(w *world, m *Manager) {
		claim := &corev1.PersistentVolumeClaim{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeName: "pv",
				StorageClassName: new(""),
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse(
					"1Gi")}}}}
		w.create(claim)
		v := w.volume("a", func(pv *corev1.PersistentVolume) {
			pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "c"}
			pv.Spec.Capacity["storage"] = resource.MustParse("2Gi") // as expanded by the resizer
		})
		w.create(v.Persistent)
		w.setUp(m, v)
		w.expect("stage publish")
		pending := func() {
			if _, err := client.Update(w.Context(), w.Client, claim, "status", func(c *corev1.PersistentVolumeClaim) error {
				c.Status.Phase = corev1.ClaimBound
				c.Status.Capacity = corev1.ResourceList{"storage": resource.MustParse("1Gi")}
				c.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{
					"storage": corev1.PersistentVolumeClaimNodeResizePending}
				return nil
			}); err != nil {
				w.Fatal(err)
			}
			synctest.Wait()
		}
		read := func() corev1.PersistentVolumeClaimStatus {
			c, err := client.Get[*corev1.PersistentVolumeClaim](w.Context(), w.Client, "default", "c")
			if err != nil {
				w.Fatal(err)
			}
			return c.Status
		}
		pending()
		w.expect("expand")
		if s := read(); s.Capacity.Storage().String() != "2Gi" || len(s.AllocatedResourceStatuses) != 0 ||
			!slices.Equal(w.events, []string{"FileSystemResizeSuccessful"}) {
			w.Errorf("%+v, events %v", s, w.events)
		}
		w.before = func(string) error { return status.Error(codes.OutOfRange, "too large") }
		pending()
		if s := read(); s.AllocatedResourceStatuses["storage"] != corev1.PersistentVolumeClaimNodeResizeInfeasible ||
			len(s.Conditions) != 1 || !strings.Contains(s.Conditions[0].Message, "too large") {
			w.Errorf("%+v", s)
		}
		w.expect("expand")
		w.before = nil
		w.tearDown(m, "a")
		w.expect("unpublish unstage")
		if _, err := client.Update(w.Context(), w.Client, claim, "status", func(c *corev1.PersistentVolumeClaim) error {
			c.Status.AllocatedResourceStatuses = nil // as in a new claim of an existing volume
			return nil
		}); err != nil {
			w.Fatal(err)
		}
		w.setUp(m, v)
		w.expect("stage publish expand")
		w.before = func(string) error { return status.Error(codes.Internal, "broken") }
		pending() // the claim requests 1Gi, the volume has 2Gi
		if s := read(); s.AllocatedResourceStatuses["storage"] != corev1.PersistentVolumeClaimNodeResizeInfeasible {
			w.Errorf("the status does not allow the resizer to retry: %+v", s)
		}
	})
}
