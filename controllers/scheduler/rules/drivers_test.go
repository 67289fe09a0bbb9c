package rules

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/controllers/scheduler/cluster"
)

// storageCapacity returns the CSIStorageCapacity of a zone. sizes is "capacity/maximumVolumeSize" in Gi; either may be
// missing.
func storageCapacity(zone, sizes string) *storagev1.CSIStorageCapacity {
	c := &storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{Namespace: "driver", Name: zone + "-" + sizes[:1]},
		StorageClassName: "later", NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{"zone": zone}}}
	size, most, _ := strings.Cut(sizes, "/")
	for text, to := range map[string]**resource.Quantity{size: &c.Capacity, most: &c.MaximumVolumeSize} {
		if text != "" {
			*to = new(resource.MustParse(text + "Gi"))
		}
	}
	return c
}

// If the driver publishes its capacity, a claim of 5 Gi fits only on nodes of zones with enough capacity.
func TestStorageCapacity(t *testing.T) {
	t.Parallel()
	const full = whySpace + " final=true"
	for name, c := range map[string]struct {
		publishes  bool
		capacities []*storagev1.CSIStorageCapacity
		fit, why   string
	}{
		"nothing published yet": {true, nil, "", full},
		"enough in one zone": {true, []*storagev1.CSIStorageCapacity{storageCapacity("1", "5"),
			storageCapacity("2", "4")}, "a", full},
		"enough in one of two": {true, []*storagev1.CSIStorageCapacity{storageCapacity("1", "4"),
			storageCapacity("1", "6")}, "a", full},
		"maximum too small": {true, []*storagev1.CSIStorageCapacity{storageCapacity("1", "9/4"),
			storageCapacity("2", "9/5")}, "b", full},
		"only a maximum":               {true, []*storagev1.CSIStorageCapacity{storageCapacity("2", "/5")}, "b", full},
		"the driver publishes nothing": {false, nil, "a b c", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := openClaim(c.publishes, c.capacities...)
			if fit, why := fitting(all, testPod(claimed("c"))); fit != c.fit || why != c.why {
				t.Errorf("fits on %q, %q; want %q, %q", fit, why, c.fit, c.why)
			}
		})
	}
	unreachable, other := storageCapacity("1", "9"), storageCapacity("1", "8")
	unreachable.NodeTopology, other.StorageClassName = nil, "other"
	if fit, _ := fitting(openClaim(true, unreachable, other), testPod(claimed("c"))); fit != "" {
		t.Errorf("fits on %q", fit)
	}
}

// openClaim returns a cluster with the unbound claim c of 5 Gi, whose class binds on first use.
func openClaim(publishes bool, capacities ...*storagev1.CSIStorageCapacity) *cluster.Cluster {
	all := sketch("a zone=1", "b zone=2", "c")
	objs := []client.Object{
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"},
			Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("later"), Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{"storage": resource.MustParse("5Gi")}}}},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "later"}, Provisioner: "d",
			VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer)},
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "d"},
			Spec: storagev1.CSIDriverSpec{StorageCapacity: &publishes}}}
	for _, c := range capacities {
		objs = append(objs, c)
	}
	for _, obj := range objs {
		all.Set(nil, obj)
	}
	return all
}

// The scheduler prefers the node with more free storage.
func TestPrefersMoreStorage(t *testing.T) {
	t.Parallel()
	all := openClaim(true, storageCapacity("1", "6"), storageCapacity("2", "50"))
	c := NewCycle(all, cluster.NewPod(testPod(claimed("c"))))
	if got := fmt.Sprint(freeStorage(c, all.Node("a")), freeStorage(c, all.Node("b"))); got != "17 90" {
		t.Errorf("scores %s", got)
	}
	if (&Chooser{Rules: All()}).Choose(c).Node.Name != "b" {
		t.Error("the chosen node is not b")
	}
}

// Only a larger capacity wakes pods, because drivers update their capacities often.
func TestCapacityChanges(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		was, is string
		helps   bool
	}{{"", "5", true}, {"5", "6", true}, {"6", "5", false}, {"5", "5", false}, {"5/3", "5/4", true}, {"5/3", "9/3", false},
		{"5", "5/4", false}} {
		var was client.Object
		if c.was != "" {
			was = storageCapacity("1", c.was)
		}
		if what, _ := cluster.New().Set(was, storageCapacity("1", c.is)); (what == cluster.MoreCapacity) != c.helps {
			t.Errorf("%s to %s: %v", c.was, c.is, what)
		}
	}
}
