package attachdetach

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"monopod/apiserver/kit/claim"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/controllers/internal/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is an API with the ready nodes n and m.
type cluster struct {
	*apitest.API
	told *events
}

// events records Events as lines: object, reason, message.
type events struct {
	mu  sync.Mutex // guards all
	all []string
}

func (e *events) Eventf(obj client.Object, _, reason, format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, obj.GetName()+" "+reason+" "+strings.TrimSpace(fmt.Sprintf(format, args...)))
}

// take returns the Events since the last call.
func (c cluster) take() string {
	apitest.Settle(time.Second)
	c.told.mu.Lock()
	defer c.told.mu.Unlock()
	all := strings.Join(c.told.all, "\n")
	c.told.all = nil
	return all
}

func newCluster(t *testing.T) cluster {
	c := cluster{apitest.New(t), &events{}}
	for _, name := range []string{"n", "m"} {
		c.Create(apitest.Node(name))
		c.Ready(name, corev1.ConditionTrue)
	}
	return c
}

func within(t *testing.T, cfg Config, test func(t *testing.T, c cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.Run(apitest.Must(New(c.Deps(), c.told, cfg)))
		test(t, c)
	})
}

// volume creates a bound claim and its volume, both called name.
func (c cluster) volume(name string, modes ...corev1.PersistentVolumeAccessMode) {
	c.T.Helper()
	size := corev1.ResourceList{"storage": resource.MustParse("1Gi")}
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: modes, StorageClassName: new(""), VolumeName: name,
			Resources: corev1.VolumeResourceRequirements{Requests: size}}}
	c.Create(pvc)
	uid := apitest.Existing[*corev1.PersistentVolumeClaim](c.API, "default", name).UID
	c.Create(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name},
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"},
		Spec: corev1.PersistentVolumeSpec{AccessModes: modes, Capacity: size,
			ClaimRef: &corev1.ObjectReference{Namespace: "default", Name: name, UID: uid},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: "d.example.com", VolumeHandle: "h-" + name}}}})
	apitest.Change(c.API, pvc, "status", func(p *corev1.PersistentVolumeClaim) { p.Status.Phase = corev1.ClaimBound })
}

func (c cluster) driver(attach bool) {
	c.T.Helper()
	c.Create(&storagev1.CSIDriver{TypeMeta: metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "CSIDriver"},
		ObjectMeta: metav1.ObjectMeta{Name: "d.example.com"}, Spec: storagev1.CSIDriverSpec{AttachRequired: &attach}})
}

// pod creates a pod on a node that uses claims.
func (c cluster) pod(name, node string, claims ...string) *corev1.Pod {
	c.T.Helper()
	pod := apitest.Pod("default", name)
	pod.Spec.NodeName = node
	for _, at := range claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: at, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: at}}})
	}
	c.Create(pod.DeepCopy())
	return pod
}

// attach updates the VolumeAttachment as the external-attacher does: attached, or failed with the message.
func (c cluster) attach(volume, node string, message string) {
	c.T.Helper()
	apitest.Settle(time.Second)
	a := c.attachment(volume, node)
	if a == nil {
		c.T.Fatalf("no VolumeAttachment for volume %s on node %s", volume, node)
	}
	apitest.Change(c.API, a, "", func(a *storagev1.VolumeAttachment) { a.Finalizers = []string{"example.com/d"} })
	apitest.Change(c.API, a, "status", func(a *storagev1.VolumeAttachment) {
		a.Status = storagev1.VolumeAttachmentStatus{Attached: message == ""}
		if message != "" {
			a.Status.AttachError = &storagev1.VolumeError{Message: message, Time: metav1.Now()}
		}
	})
	apitest.Settle(time.Second)
}

// detached removes the finalizer of the VolumeAttachment, as the external-attacher does after a detach.
func (c cluster) detached(volume, node string) {
	c.T.Helper()
	apitest.Change(c.API, c.attachment(volume, node), "", func(a *storagev1.VolumeAttachment) { a.Finalizers = nil })
	apitest.Settle(time.Second)
}

func (c cluster) attachment(volume, node string) *storagev1.VolumeAttachment {
	a, _ := apitest.Get[*storagev1.VolumeAttachment](c.API, "", claim.AttachmentName("d.example.com", "h-"+volume, node))
	return a
}

// use writes the node's volumesInUse, as the agent does.
func (c cluster) use(node string, volumes ...string) {
	c.T.Helper()
	apitest.Change(c.API, apitest.Node(node), "status", func(n *corev1.Node) {
		n.Status.VolumesInUse = nil
		for _, v := range volumes {
			n.Status.VolumesInUse = append(n.Status.VolumesInUse, claim.UniqueName("d.example.com", "h-"+v))
		}
	})
	apitest.Settle(time.Second)
}

// state returns the volumes in the node's volumesAttached ("lists"), and the state of its VolumeAttachments.
func (c cluster) state(node string) string {
	c.T.Helper()
	apitest.Settle(time.Second)
	var out []string
	if n, ok := apitest.Get[*corev1.Node](c.API, "", node); ok {
		for _, a := range n.Status.VolumesAttached {
			_, handle, _ := claim.SplitUniqueName(a.Name)
			out = append(out, "lists "+strings.TrimPrefix(handle, "h-"))
		}
	}
	for _, a := range apitest.List[*storagev1.VolumeAttachment](c.API, "") {
		if a.Spec.NodeName != node {
			continue
		}
		what := "attaching "
		switch {
		case a.DeletionTimestamp != nil:
			what = "detaching "
		case a.Status.Attached:
			what = "attached "
		}
		out = append(out, what+*a.Spec.Source.PersistentVolumeName)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func (c cluster) expect(node, want string) {
	c.T.Helper()
	if got := c.state(node); got != want {
		c.T.Errorf("%s: got %q, want %q", node, got, want)
	}
}

// A volume is attached for a pod, and detached after the node has unmounted it, not earlier.
func TestAttachAndDetach(t *testing.T) {
	t.Parallel()
	within(t, Config{}, func(t *testing.T, c cluster) {
		c.driver(true)
		c.volume("v", corev1.ReadWriteOnce)
		c.pod("plain", "n")
		c.expect("n", "")
		p := c.pod("p", "n", "v")
		c.expect("n", "attaching v")
		c.use("n", "v")
		c.attach("v", "n", "")
		c.expect("n", "attached v, lists v")
		if got := c.take(); got != `p SuccessfulAttachVolume AttachVolume.Attach succeeded for volume "v"` {
			t.Errorf("events: %s", got)
		}
		c.EndPod(p)
		c.expect("n", "attached v, lists v")
		time.Sleep(time.Hour)
		c.expect("n", "attached v, lists v")
		c.use("n")
		c.expect("n", "detaching v")
		again := c.pod("again", "n", "v")
		c.use("n", "v")
		c.expect("n", "detaching v") // the node waits for volumesAttached
		c.detached("v", "n")
		c.expect("n", "attaching v")
		c.attach("v", "n", "")
		c.expect("n", "attached v, lists v")
		c.Phase(again, corev1.PodSucceeded, false)
		c.use("n")
		c.detached("v", "n")
		c.expect("n", "")
	})
}

// The controller attaches the volume of a claim that is bound after its pod, and that of an ephemeral volume's claim.
func TestClaims(t *testing.T) {
	t.Parallel()
	within(t, Config{}, func(t *testing.T, c cluster) {
		c.pod("early", "n", "v")
		c.volume("v", corev1.ReadWriteOnce)
		c.expect("n", "attaching v")
		pod := apitest.Pod("default", "p")
		pod.Spec.NodeName = "m"
		pod.Spec.Volumes = []corev1.Volume{{Name: "e", VolumeSource: corev1.VolumeSource{
			Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
				Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources: corev1.VolumeResourceRequirements{
						Requests: corev1.ResourceList{"storage": resource.MustParse("1Gi")}}}}}}}}
		c.Create(pod)
		c.volume("p-e", corev1.ReadWriteOnce)
		c.expect("m", "") // the pod does not own the claim yet
		owner := apitest.Existing[*corev1.Pod](c.API, "default", "p")
		apitest.Change(c.API, apitest.Existing[*corev1.PersistentVolumeClaim](c.API, "default", "p-e"), "",
			func(p *corev1.PersistentVolumeClaim) {
				p.OwnerReferences = []metav1.OwnerReference{
					*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("Pod"))}
			})
		apitest.Change(c.API, apitest.Node("m"), "", func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoSchedule}}
		})
		c.expect("m", "attaching p-e")
	})
}

// The controller attaches no volume of a driver without attachRequired, and detaches those that it attached before the
// CSIDriver existed.
func TestDriverWithoutAttach(t *testing.T) {
	t.Parallel()
	within(t, Config{}, func(t *testing.T, c cluster) {
		c.volume("v", corev1.ReadWriteMany)
		c.pod("p", "n", "v")
		c.expect("n", "attaching v")
		c.driver(false)
		c.expect("n", "")
		c.pod("q", "m", "v")
		c.expect("m", "")
	})
}

// A ReadWriteOnce volume is attached to another node only after its detach, a ReadWriteMany volume at once.
func TestOtherNode(t *testing.T) {
	t.Parallel()
	within(t, Config{}, func(t *testing.T, c cluster) {
		c.volume("one", corev1.ReadWriteOnce)
		c.volume("many", corev1.ReadWriteMany)
		p := c.pod("p", "n", "one", "many")
		c.attach("one", "n", "")
		c.attach("many", "n", "")
		c.use("n", "one", "many")
		c.take()
		c.pod("q", "m", "one", "many")
		c.expect("m", "attaching many")
		const waits = `q FailedAttachVolume Waiting for detach for volume "one" Volume is already used by pod(s) p`
		if got := c.take(); got != waits {
			t.Errorf("events: %s", got)
		}
		c.EndPod(p)
		c.use("n")
		c.expect("n", "detaching many, detaching one")
		c.expect("m", "attaching many")
		c.detached("one", "n")
		c.expect("m", "attaching many, attaching one")
	})
}

func TestAttacherFails(t *testing.T) {
	t.Parallel()
	within(t, Config{}, func(t *testing.T, c cluster) {
		c.volume("v", corev1.ReadWriteOnce)
		c.pod("p", "n", "v")
		time.Sleep(117 * time.Second)
		if got := c.take(); got != "" {
			t.Errorf("too early: %s", got)
		}
		time.Sleep(4 * time.Second)
		const slow = `p FailedAttachVolume AttachVolume.Attach failed for volume "v" : timed out waiting for ` +
			`external-attacher of d.example.com CSI driver to attach volume h-v`
		if got := c.take(); got != slow {
			t.Errorf("events: %s", got)
		}
		const failed = `p FailedAttachVolume AttachVolume.Attach failed for volume "v" : no such disk`
		for range 2 {
			c.attach("v", "n", "no such disk")
			if got := c.take(); got != failed {
				t.Errorf("events: %s", got)
			}
		}
		c.attach("v", "n", "")
		c.expect("n", "attached v, lists v")
	})
}

// The controller force-detaches a volume from a node that is not ready after 6 minutes, and at once if the node has the
// out-of-service taint.
func TestForcedDetach(t *testing.T) {
	t.Parallel()
	remove := func(c cluster) { c.Delete(apitest.Node("n"), "") }
	fail := func(c cluster) { c.Ready("n", corev1.ConditionUnknown) }
	taint := func(c cluster) {
		fail(c)
		apitest.Change(c.API, apitest.Node("n"), "", func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
		})
	}
	const minutes = 6 * time.Minute
	for name, tc := range map[string]struct {
		cfg   Config
		how   func(c cluster)
		after time.Duration // -1: never
		count string
	}{
		"not ready":           {Config{}, fail, minutes, "timeout=1"},
		"deleted":             {Config{}, remove, minutes, "timeout=1"},
		"not ready, disabled": {Config{DisableForceDetachOnTimeout: true}, fail, -1, ""},
		"out of service":      {Config{DisableForceDetachOnTimeout: true}, taint, 0, "out-of-service=1"},
		"ready, pod deleted":  {Config{}, func(cluster) {}, -1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			within(t, tc.cfg, func(t *testing.T, c cluster) {
				c.volume("v", corev1.ReadWriteOnce)
				p := c.pod("p", "n", "v")
				c.attach("v", "n", "")
				c.use("n", "v")
				tc.how(c)
				time.Sleep(time.Hour)
				if c.attachment("v", "n").DeletionTimestamp != nil {
					t.Error("detached while a pod uses it")
				}
				c.EndPod(p)
				switch {
				case tc.after < 0:
					time.Sleep(time.Hour)
				case tc.after > 0:
					time.Sleep(tc.after - 5*time.Second)
					if c.attachment("v", "n").DeletionTimestamp != nil {
						t.Error("detached before the timeout")
					}
					time.Sleep(6 * time.Second)
				}
				apitest.Settle(time.Second)
				if got := c.attachment("v", "n").DeletionTimestamp != nil; got != (tc.after >= 0) {
					t.Errorf("detached: %v", got)
				}
				got := c.Counters("attach_detach_controller_attachdetach_controller_forced_detaches", "")
				if strings.TrimSpace(got) != tc.count {
					t.Errorf("metric %q, want %q", got, tc.count)
				}
			})
		})
	}
}

// The controller restores volumesAttached of a node that registers again.
func TestNodeRegistersAgain(t *testing.T) {
	t.Parallel()
	within(t, Config{}, func(t *testing.T, c cluster) {
		c.volume("v", corev1.ReadWriteOnce)
		c.pod("early", "later", "v")
		c.expect("later", "")
		c.Create(apitest.Node("later"))
		c.expect("later", "attaching v")
		c.attach("v", "later", "")
		c.expect("later", "attached v, lists v")
		c.Delete(apitest.Node("later"), "")
		c.expect("later", "attached v")
		c.Create(apitest.Node("later"))
		c.expect("later", "attached v, lists v")
	})
}

// At its start the controller keeps entries of volumesAttached and VolumeAttachments that other clients created, and
// deletes its own VolumeAttachments without a pod.
func TestFoundAtStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.volume("v", corev1.ReadWriteMany)
		c.volume("w", corev1.ReadWriteMany)
		c.pod("p", "n", "v")
		create := func(name, volume, node string) {
			c.Create(&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name},
				TypeMeta: metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "VolumeAttachment"},
				Spec: storagev1.VolumeAttachmentSpec{Attacher: "d.example.com", NodeName: node,
					Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}}})
		}
		for _, v := range []string{"v", "w", "lost"} {
			for _, node := range []string{"n", "m"} {
				create(claim.AttachmentName("d.example.com", "h-"+v, node), v, node)
			}
		}
		create("foreign", "v", "m")
		create("csi-"+strings.Repeat("0", 64), "w", "n") // not the hash of volume and node
		apitest.Change(c.API, apitest.Node("n"), "status", func(n *corev1.Node) {
			n.Status.VolumesInUse = []corev1.UniqueVolumeName{"kubernetes.io/csi/d.example.com^h-lost"}
			n.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "example.com/other^x", DevicePath: "x"},
				{Name: "kubernetes.io/csi/d.example.com^h-w", DevicePath: "stale"}}
		})
		c.Run(apitest.Must(New(c.Deps(), c.told, Config{})))
		c.expect("n", "attaching lost, attaching v, attaching w, lists x")
		c.expect("m", "attaching v")
		c.use("n")
		c.expect("n", "attaching v, attaching w, lists x")
	})
}

// watching counts watches.
type watching struct {
	client.Ordered
	all *[]string
}

func (w watching) Watch(ctx context.Context, sel client.Selector, rv string) (<-chan watch.Event, error) {
	*w.all = append(*w.all, sel.Resource.Resource)
	return w.Ordered.Watch(ctx, sel, rv)
}

// Without a CSI volume the controller watches only PersistentVolumes.
func TestIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		deps, watched := c.Deps(), []string{}
		deps.Client = watching{deps.Client.(client.Ordered), &watched}
		c.Run(apitest.Must(New(deps, c.told, Config{})))
		c.Create(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "path"},
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"},
			Spec: corev1.PersistentVolumeSpec{Capacity: corev1.ResourceList{"storage": resource.MustParse("1Gi")},
				AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/x"}}}})
		c.pod("p", "n")
		apitest.Settle(time.Hour)
		if fmt.Sprint(watched) != "[persistentvolumes]" {
			t.Errorf("watches %v", watched)
		}
		c.volume("v", corev1.ReadWriteOnce)
		c.pod("q", "n", "v")
		c.expect("n", "attaching v")
		before := c.Counters("workqueue_adds_total", "")
		for range 10 { // changes that affect no volume
			c.Phase(apitest.Pod("default", "p"), corev1.PodRunning, true)
			c.Ready("n", corev1.ConditionTrue)
			time.Sleep(time.Second)
		}
		c.EndPod(apitest.Pod("default", "p"))
		apitest.Settle(time.Second)
		if after := c.Counters("workqueue_adds_total", ""); after != before {
			t.Errorf("keys added by unrelated changes: %s, before %s", after, before)
		}
	})
}

// crashing is a client of a process that dies at its n-th write: before the write, or after it.
type crashing struct {
	client.Ordered
	left  *int
	after bool
	dead  *bool
}

var errDead = errors.New("the process is dead")

func (c crashing) write(do func() (client.Object, error)) (client.Object, error) {
	if *c.dead {
		return nil, errDead
	}
	*c.left--
	if *c.dead = *c.left == 0; *c.dead && !c.after {
		return nil, errDead
	}
	obj, err := do()
	if *c.dead {
		return nil, errDead
	}
	return obj, err
}

func (c crashing) Create(ctx context.Context, obj client.Object) (client.Object, error) {
	return c.write(func() (client.Object, error) { return c.Ordered.Create(ctx, obj) })
}

func (c crashing) Update(ctx context.Context, ref client.Ref, change client.Change) (client.Object, error) {
	return c.write(func() (client.Object, error) { return c.Ordered.Update(ctx, ref, change) })
}

func (c crashing) Delete(ctx context.Context, ref client.Ref, o metav1.DeleteOptions) (client.Object, error) {
	return c.write(func() (client.Object, error) { return c.Ordered.Delete(ctx, ref, o) })
}

// However the process dies while a pod moves from one node to another, the next one continues, and no volume is ever
// attached to two nodes.
func TestCrashAtEachWrite(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		for n, crashed := 1, true; crashed; n++ {
			t.Run(fmt.Sprint(n, after), func(t *testing.T) { crashed = move(t, n, after) })
			if n > 50 {
				t.Fatal("too many writes")
			}
		}
	}
}

// move moves a pod, with a crash at the n-th write. It reports whether there were so many writes.
func move(t *testing.T, n int, after bool) (crashed bool) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		left, dead := n, false
		deps := c.Deps()
		deps.Client = crashing{deps.Client.(client.Ordered), &left, after, &dead}
		controller := apitest.Must(New(deps, c.told, Config{}))
		restart := c.Restarting(func() follow.Controller {
			dead = false
			return controller
		})
		step := func(what func()) {
			what()
			apitest.Settle(time.Second)
			if dead && !crashed {
				crashed = true
				restart()
				apitest.Settle(time.Second)
			}
		}
		step(func() { c.volume("v", corev1.ReadWriteOnce) })
		var p *corev1.Pod
		step(func() { p = c.pod("p", "n", "v") })
		step(func() { c.attach("v", "n", "") })
		step(func() { c.use("n", "v") })
		c.expect("n", "attached v, lists v")
		step(func() { c.EndPod(p); c.pod("q", "m", "v") })
		c.expect("m", "")
		step(func() { c.use("n") })
		c.expect("n", "detaching v")
		step(func() { c.detached("v", "n") })
		step(func() { c.attach("v", "m", "") })
		c.expect("n", "")
		c.expect("m", "attached v, lists v")
	})
	return crashed
}
