package agent_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/claim"
	"monopod/apiserver/kit/client"
)

func newClaim(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		TypeMeta: metav1.TypeMeta{
			APIVersion: "v1",
			Kind:       "PersistentVolumeClaim",
		}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("1Gi")}},
		},
	}
}

func claiming(name, claim string) *corev1.Pod {
	p := pod(name)
	p.Spec.Volumes = []corev1.Volume{
		{
			Name: "v",
			VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
			},
		},
	}
	p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
	return p
}

// bindClaim binds the claim to a volume at path, like the controllers.
func (w *world) bindClaim(name, path string, change ...func(*corev1.PersistentVolume)) {
	w.Helper()
	c, err := client.Get[*corev1.PersistentVolumeClaim](w.Context(), w.api, "default", name)
	if err != nil {
		w.Fatal(err)
	}
	v := &corev1.PersistentVolume{
		TypeMeta: metav1.TypeMeta{
			APIVersion: "v1",
			Kind:       "PersistentVolume",
		}, ObjectMeta: metav1.ObjectMeta{Name: "of-" + name},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: c.Spec.AccessModes, Capacity: c.Spec.Resources.Requests, ClaimRef: claim.Reference(c),
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}},
		},
	}
	for _, f := range change {
		f(v)
	}
	w.create(v)
	_, err = client.Update(w.Context(), w.api, c, "", func(c *corev1.PersistentVolumeClaim) error {
		c.Spec.VolumeName = v.Name
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, claim.BindCompleted, "yes")
		return nil
	})
	if err == nil {
		_, err = client.Update(
			w.Context(),
			w.api,
			c,
			"status",
			func(c *corev1.PersistentVolumeClaim) error { c.Status.Phase = corev1.ClaimBound; return nil },
		)
	}
	if err != nil {
		w.Fatal(err)
	}
}

// A pod waits for its claim and starts as soon as it is bound.
func TestPodWaitsForItsClaim(t *testing.T) {
	inWorld(t, func(w *world) {
		disk := filepath.Join(w.dir, "disk")
		if err := os.Mkdir(disk, 0o755); err != nil {
			t.Fatal(err)
		}
		w.create(newClaim("c"))
		w.create(claiming("p", "c"))
		w.after(20 * time.Second)
		if p := w.get("p"); p.Status.Phase != corev1.PodPending ||
			!w.hasEvent(
				`Warning p FailedMount: MountVolume.SetUp failed for volume "v" : error processing PVC default/c: PVC is not bound`,
			) {
			t.Errorf("%s, events: %q", p.Status.Phase, w.recorded())
		}
		w.bindClaim("c", disk)
		if took := w.until(time.Second, "p", ready); took > 100*time.Millisecond {
			t.Errorf("the pod started only after %v", took)
		}
		w.delete("p", 0)
		w.until(time.Second, "p", gone)
		if _, err := os.Stat(disk); err != nil {
			t.Error(err)
		}
		w.nothingLeft()
	})
}

// A claim that is bound a moment after its pod was scheduled causes no event.
func TestClaimBoundShortlyAfterPod(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create(newClaim("c"))
		w.create(claiming("p", "c"))
		w.after(5 * time.Second)
		w.bindClaim("c", w.dir)
		if took := w.until(time.Second, "p", ready); took > 100*time.Millisecond {
			t.Errorf("the pod started only after %v", took)
		}
		if w.hasEvent("FailedMount") {
			t.Errorf("events: %q", w.recorded())
		}
	})
}

func TestPodWithUnusableClaim(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, name := range []string{"leaving", "elsewhere"} {
			w.create(newClaim(name))
			w.create(claiming("p-"+name, name))
		}
		w.create(claiming("p-missing", "missing"))
		if _, err := w.api.Delete(w.Context(), client.RefOf(newClaim("leaving")), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.bindClaim("elsewhere", w.dir, func(v *corev1.PersistentVolume) {
			v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{
				Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{
						{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"n2"}},
					}}}},
			}
		})
		w.after(20 * time.Second)
		for _, want := range []string{
			`p-leaving FailedMount: MountVolume.SetUp failed for volume "v" : error processing PVC default/leaving: can't ` +
				`start pod because PVC default/leaving is being deleted`,
			`p-elsewhere FailedMount: MountVolume.SetUp failed for volume "v" : MountVolume.NodeAffinity check failed for ` +
				`volume "of-elsewhere": no matching NodeSelectorTerms`,
			`p-missing FailedMount: MountVolume.SetUp failed for volume "v" : error processing PVC default/missing: ` +
				`persistentvolumeclaims "missing" not found`,
		} {
			if !w.hasEvent(want) {
				t.Errorf("no event: %s", want)
			}
		}
		if t.Failed() {
			t.Logf("events: %q", w.recorded())
		}
	})
}

// ReadWriteOncePod is also enforced for pods that bypass the scheduler, and after a restart of the agent.
func TestClaimOfOnePod(t *testing.T) {
	inWorld(t, func(w *world) {
		c := newClaim("c")
		c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
		w.create(c)
		w.bindClaim("c", w.dir)
		for _, name := range []string{"b", "d"} {
			w.create(claiming(name, "c"))
		}
		w.after(time.Second)
		first, second := "b", "d"
		if !ready(w.get(first)) {
			first, second = second, first
		}
		event := `Warning ` + second + ` FailedMount: MountVolume.SetUp failed for volume "v" : volume uses the ` +
			`ReadWriteOncePod access mode and is already in use by another pod`
		if !ready(w.get(first)) || ready(w.get(second)) || !w.hasEvent(event) {
			t.Fatalf("%s and %s: events: %q", w.get(first).Status.Phase, w.get(second).Status.Phase, w.recorded())
		}
		w.create(claiming("a", "c"))
		for range 3 {
			w.stop()
			w.startAgent()
			w.after(time.Minute)
			if !ready(w.get(first)) || ready(w.get(second)) || ready(w.get("a")) {
				t.Error("after a restart of the agent, another pod has the claim")
			}
		}
		w.delete("a", 0)
		w.until(time.Second, "a", gone)
		w.delete(first, 0)
		if took := w.until(10*time.Second, second, ready); took > 2*time.Second || w.get(first) != nil {
			t.Errorf("the second pod started %v after the deletion of the first", took)
		}
	})
}

// The folder of a claim survives a restart. The agent removes it with the claim once no container uses it, even after
// the forced deletion of the pod.
func TestFolderOfAClaim(t *testing.T) {
	inWorld(t, func(w *world) {
		dir := filepath.Join(w.dir, "volumes", "pvc-x")
		if err := os.MkdirAll(dir+"/sub", 0o755); err != nil {
			t.Fatal(err)
		}
		w.create(newClaim("c"))
		w.bindClaim("c", "", func(v *corev1.PersistentVolume) {
			v.Name, v.Annotations = "pvc-x", map[string]string{claim.ProvisionedBy: claim.Provisioner}
			v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
			v.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: dir}}
			v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{
				Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{
						{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"n1"}},
					}}}},
			}
		})
		p := claiming("p", "c")
		p.Spec.Containers[0].Args = []string{"-ignore-term"}
		p.Spec.TerminationGracePeriodSeconds = new(int64(30))
		w.create(p)
		w.until(time.Second, "p", ready)
		w.stop()
		w.startAgent()
		w.after(time.Second)
		w.delete("p", 30)
		w.after(time.Second)
		w.delete("p", 0) // by force: its containers keep running
		v := &corev1.PersistentVolume{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"},
			ObjectMeta: metav1.ObjectMeta{Name: "pvc-x"},
		}
		if _, err := client.Update(w.Context(), w.api, v, "status",
			func(v *corev1.PersistentVolume) error { v.Status.Phase = corev1.VolumeReleased; return nil }); err != nil {
			t.Fatal(err)
		}
		w.after(10 * time.Second)
		if _, err := os.Stat(dir + "/sub"); err != nil {
			t.Errorf("folder removed while a container that uses it runs: %v", err)
		}
		w.after(5 * time.Minute)
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("folder not removed: %v", err)
		}
	})
}
