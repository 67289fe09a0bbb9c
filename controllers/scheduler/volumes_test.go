package scheduler

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/claim"
	"monopod/controllers/internal/apitest"
	"monopod/controllers/podstate"
	"monopod/controllers/scheduler/cluster"
)

func newClaim(name, class string, modes ...corev1.PersistentVolumeAccessMode) *corev1.PersistentVolumeClaim {
	if modes == nil {
		modes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	}
	return &corev1.PersistentVolumeClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: modes, StorageClassName: &class,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("1Gi")}},
		},
	}
}

// localVolume returns a local volume on the node.
func localVolume(name, class, node string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: class,
			Capacity:               corev1.ResourceList{"storage": resource.MustParse("1Gi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/x/" + name}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "host", Operator: corev1.NodeSelectorOpIn,
					Values: []string{node}}}}}}},
		},
	}
}

func newClass(name, provisioner string, mode storagev1.VolumeBindingMode) *storagev1.StorageClass {
	return &storagev1.StorageClass{
		TypeMeta:   metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "StorageClass"},
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner, VolumeBindingMode: &mode,
	}
}

// bindTo binds a claim to a volume, as the volume controller does.
func bindTo(api *apitest.API, name, volume string) {
	apitest.Change(api, newClaim(name, ""), "", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeName = volume
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, claim.BindCompleted, "yes")
	})
	apitest.Change(api, newClaim(name, ""), "status",
		func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimBound })
	synctest.Wait()
}

func using(claims ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for _, name := range claims {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}})
		}
	}
}

func addNodes(api *apitest.API, names ...string) {
	for _, name := range names {
		node := apitest.Node(name)
		node.Labels = map[string]string{"host": name}
		api.Create(node)
		api.Ready(name, corev1.ConditionTrue)
	}
}

func whyNot(api *apitest.API, name string) string {
	synctest.Wait()
	p, _ := apitest.Get[*corev1.Pod](api, "default", name)
	if c := podstate.Condition(p, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse {
		return c.Message
	}
	return ""
}

func TestWaitsForItsClaim(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		addNodes(api, "n")
		api.Create(newClass("now", "example.com/x", storagev1.VolumeBindingImmediate), apitest.Pod("default", "p",
			using("c")))
		if why := whyNot(api, "p"); why != `0/1 nodes are available: persistentvolumeclaim "c" not found. preemption: 0/1 `+
			`nodes are available: 1 Preemption is not helpful for scheduling.` {
			t.Errorf("without the claim: %q", why)
		}
		api.Create(newClaim("c", "now"))
		if why := whyNot(api, "p"); why != "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. "+
			"preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling." {
			t.Errorf("with an unbound claim: %q", why)
		}
		api.Create(localVolume("v", "now", "n"))
		bindTo(api, "c", "v")
		if node := nodeOf(api, "p"); node != "n" {
			t.Errorf("on node %q after its claim was bound", node)
		}
	})
}

func TestFollowsItsVolume(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		addNodes(api, "a", "b", "c")
		api.Create(localVolume("v", "", "b"), newClaim("c", ""))
		bindTo(api, "c", "v")
		api.Create(apitest.Pod("default", "p", using("c")), apitest.Pod("default", "torn", using("c"),
			func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"host": "a"} }))
		synctest.Wait()
		if node := nodeOf(api, "p"); node != "b" {
			t.Errorf("on node %q, want b, the node of its volume", node)
		}
		if why := whyNot(api, "torn"); !strings.Contains(why, "1 node(s) didn't match PersistentVolume's node affinity") {
			t.Errorf("message %q", why)
		}
	})
}

func TestSelectsNodeOfWaitingClaim(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		addNodes(api, "a", "b")
		api.Create(newClass("later", "example.com/x", storagev1.VolumeBindingWaitForFirstConsumer), newClaim("c", "later"),
			apitest.Pod("default", "p", using("c"), func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"host": "b"} },
				wants("cpu", "3")))
		synctest.Wait()
		c, _ := apitest.Get[*corev1.PersistentVolumeClaim](api, "default", "c")
		if at := c.Annotations[claim.SelectedNode]; at != "b" || nodeOf(api, "p") != "" {
			t.Fatalf("claim for node %q, pod on %q", at, nodeOf(api, "p"))
		}
		api.Create(apitest.Pod("default", "greedy",
			func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"host": "b"} }, wants("cpu", "3")))
		if why := whyNot(api, "greedy"); !strings.Contains(why, "Insufficient cpu") {
			t.Errorf("the reservation of a pod that waits for its volume was lost: %q", why)
		}
		api.Create(localVolume("v", "later", "b"))
		bindTo(api, "c", "v")
		if node := nodeOf(api, "p"); node != "b" {
			t.Errorf("pod on %q", node)
		}
	})
}

// A provisioner that cannot create the volume on the selected node removes the annotation. The scheduler then selects
// again a node with enough capacity, or waits until the driver reports more capacity.
func TestProvisionerRefusesNode(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		addNodes(api, "a", "b")
		capacity := func(node, size string) *storagev1.CSIStorageCapacity {
			return &storagev1.CSIStorageCapacity{
				TypeMeta:         metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "CSIStorageCapacity"},
				ObjectMeta:       metav1.ObjectMeta{Namespace: "default", Name: node},
				StorageClassName: "later", NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{"host": node}},
				Capacity: new(resource.MustParse(size))}
		}
		offer := func(node, size string) {
			apitest.Change(api, capacity(node, size), "", func(c *storagev1.CSIStorageCapacity) {
				c.Capacity = new(resource.MustParse(size))
			})
		}
		api.Create(&storagev1.CSIDriver{TypeMeta: metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "CSIDriver"},
			ObjectMeta: metav1.ObjectMeta{Name: "example.com"}, Spec: storagev1.CSIDriverSpec{StorageCapacity: new(true)}},
			capacity("a", "9Gi"), capacity("b", "5Gi"),
			newClass("later", "example.com", storagev1.VolumeBindingWaitForFirstConsumer), newClaim("c", "later"),
			apitest.Pod("default", "p", using("c")))
		selected := func() string {
			apitest.Settle(time.Minute)
			return apitest.Existing[*corev1.PersistentVolumeClaim](api, "default", "c").Annotations[claim.SelectedNode]
		}
		refuse := func() {
			apitest.Change(api, newClaim("c", ""), "",
				func(c *corev1.PersistentVolumeClaim) { delete(c.Annotations, claim.SelectedNode) })
			synctest.Wait()
		}
		if at := selected(); at != "a" {
			t.Fatalf("selected %q", at)
		}
		refuse() // the capacity of a is unchanged, so the scheduler selects a again
		if why := whyNot(api, "p"); why != `binding volumes: provisioning failed for PVC "c"` {
			t.Errorf("message %q", why)
		}
		if at := selected(); at != "a" {
			t.Fatalf("selected %q", at)
		}
		offer("a", "0")
		refuse()
		if at := selected(); at != "b" {
			t.Fatalf("selected %q", at)
		}
		offer("b", "0")
		refuse()
		if at := selected(); at != "" {
			t.Fatalf("selected %q", at)
		}
		if why := whyNot(api, "p"); !strings.HasPrefix(why,
			"0/2 nodes are available: 2 node(s) did not have enough free storage.") {
			t.Errorf("message %q", why)
		}
		offer("a", "1Gi")
		if at := selected(); at != "a" {
			t.Errorf("selected %q", at)
		}
	})
}

func TestReservationEndsWithoutVolume(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		addNodes(api, "a")
		api.Create(newClass("later", "example.com/x", storagev1.VolumeBindingWaitForFirstConsumer), newClaim("c", "later"),
			apitest.Pod("default", "p", using("c"), wants("cpu", "3")), apitest.Pod("default", "q", wants("cpu", "3"),
				func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "x"}} }))
		apitest.Settle(cluster.BindTime / 2)
		apitest.Change(api, apitest.Pod("default", "q"), "", func(p *corev1.Pod) { p.Spec.SchedulingGates = nil })
		synctest.Wait()
		if nodeOf(api, "q") != "" {
			t.Error("the reservation ended before the bind timeout")
		}
		apitest.Settle(cluster.BindTime)
		if nodeOf(api, "q") != "a" {
			t.Errorf("the reservation did not end after the bind timeout: %q", whyNot(api, "q"))
		}
	})
}

func TestWaitingClaimGetsExistingVolume(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		addNodes(api, "a", "b")
		for _, name := range []string{"v", "w"} {
			api.Create(localVolume(name, "hand", "b"))
			apitest.Change(api, localVolume(name, "", ""), "status",
				func(v *corev1.PersistentVolume) { v.Status.Phase = corev1.VolumeAvailable })
		}
		api.Create(newClass("hand", claim.NoProvisioner, storagev1.VolumeBindingWaitForFirstConsumer), newClaim("c", "hand"),
			newClaim("d", "hand"), newClaim("e", "hand"),
			apitest.Pod("default", "p", using("c", "d")), apitest.Pod("default", "q", using("e")))
		synctest.Wait()
		claims := map[string]bool{}
		for _, v := range apitest.List[*corev1.PersistentVolume](api, "") {
			if v.Spec.ClaimRef != nil {
				claims[v.Spec.ClaimRef.Name] = true
			}
		}
		// either both claims of p have volumes, or the claim of q has one
		if both := claims["c"] && claims["d"]; claims["c"] != claims["d"] || claims["e"] == both {
			t.Errorf("volumes are reserved for the claims %v", claims)
		}
	})
}

// TestChosenVolumes tests that each pod gets all of its volumes or none, although there are too few volumes for all.
func TestChosenVolumes(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		addNodes(api, "a", "b")
		api.Create(newClass("hand", claim.NoProvisioner, storagev1.VolumeBindingWaitForFirstConsumer))
		const pods, each, volumes = 12, 3, 20
		add := func(i int) {
			name := fmt.Sprint("v", i)
			api.Create(localVolume(name, "hand", "b"))
			apitest.Change(api, localVolume(name, "", ""), "status",
				func(v *corev1.PersistentVolume) { v.Status.Phase = corev1.VolumeAvailable })
		}
		for i := range volumes {
			add(i)
		}
		for i := range pods {
			var names []string
			for j := range each {
				names = append(names, fmt.Sprint("c", i, "-", j))
				api.Create(newClaim(names[j], "hand"))
			}
			api.Create(apitest.Pod("default", fmt.Sprint("p", i), using(names...)))
		}
		complete := func() (n int) {
			synctest.Wait()
			of := map[string]int{}
			for _, v := range apitest.List[*corev1.PersistentVolume](api, "") {
				if v.Spec.ClaimRef != nil {
					pod, _, _ := strings.Cut(v.Spec.ClaimRef.Name, "-")
					of[pod]++
				}
			}
			for pod, has := range of {
				if has != each {
					t.Errorf("the claims of %s have %d of %d volumes", pod, has, each)
				}
			}
			return len(of)
		}
		if n := complete(); n != volumes/each {
			t.Errorf("volumes for %d pods, want %d", n, volumes/each)
		}
		add(volumes)
		if n := complete(); n != (volumes+1)/each {
			t.Errorf("volumes for %d pods, want %d", n, (volumes+1)/each)
		}
	})
}

func TestOnePodAlone(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		addNodes(api, "a")
		v := localVolume("v", "", "a")
		v.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
		api.Create(v, newClaim("c", "", corev1.ReadWriteOncePod))
		bindTo(api, "c", "v")
		api.Create(apitest.Pod("default", "first", using("c")))
		synctest.Wait()
		api.Create(apitest.Pod("default", "second", using("c")))
		if why := whyNot(api, "second"); nodeOf(api, "first") != "a" || !strings.Contains(why,
			"ReadWriteOncePod access mode") {
			t.Errorf("first on %q, second: %q", nodeOf(api, "first"), why)
		}
		api.Phase(apitest.Pod("default", "first"), corev1.PodSucceeded, false)
		synctest.Wait()
		if nodeOf(api, "second") != "a" {
			t.Error("not bound after the first pod had ended")
		}
	})
}

func TestUnusableClaims(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		addNodes(api, "a")
		api.Create(newClaim("lost", ""), newClaim("leaving", ""), newClaim("gone", ""), newClaim("owned-x", ""))
		apitest.Change(api, newClaim("lost", ""), "status",
			func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost })
		api.Delete(newClaim("leaving", ""), "")
		bindTo(api, "gone", "nothing")
		owned := apitest.Pod("default", "owned", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "x",
				VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
					VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: newClaim("", "").Spec}}}}}
		})
		api.Create(apitest.Pod("default", "p-lost", using("lost")), apitest.Pod("default", "p-leaving", using("leaving")),
			apitest.Pod("default", "p-gone", using("gone")), owned)
		for pod, want := range map[string]string{
			"p-lost": "bound to non-existent persistentvolume", "p-leaving": `persistentvolumeclaim "leaving" is being deleted`,
			"p-gone": "bound to non-existent pv(s)",
			"owned":  "PVC default/owned-x was not created for pod default/owned (pod is not owner)",
		} {
			if why := whyNot(api, pod); !strings.Contains(why, want) {
				t.Errorf("%s: %q", pod, why)
			}
		}
	})
}
