package persistentvolume

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/claim"
	"monopod/controllers/internal/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// within runs a test with a running controller.
func within(t *testing.T, test func(t *testing.T, api *apitest.API)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Events.Watch()
		api.Run(New(api.Deps(), &api.Events))
		test(t, api)
	})
}

func newClaim(name, class, size string, change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse(size)}},
		},
	}
	for _, f := range change {
		f(c)
	}
	return c
}

func newVolume(name, class, size string, change ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: class,
			Capacity:               corev1.ResourceList{"storage": resource.MustParse(size)},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/x/" + name}},
		},
	}
	for _, f := range change {
		f(v)
	}
	return v
}

func newClass(name, provisioner string, mode storagev1.VolumeBindingMode) *storagev1.StorageClass {
	return &storagev1.StorageClass{
		TypeMeta:   metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "StorageClass"},
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner, VolumeBindingMode: &mode,
	}
}

func gone(c *corev1.PersistentVolumeClaim) { c.Finalizers = nil }

func claimOf(t *testing.T, api *apitest.API, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	synctest.Wait()
	c, ok := apitest.Get[*corev1.PersistentVolumeClaim](api, "default", name)
	if !ok {
		t.Fatalf("claim %s does not exist", name)
	}
	return c
}

func volumeOf(t *testing.T, api *apitest.API, name string) *corev1.PersistentVolume {
	t.Helper()
	synctest.Wait()
	v, ok := apitest.Get[*corev1.PersistentVolume](api, "", name)
	if !ok {
		t.Fatalf("volume %s does not exist", name)
	}
	return v
}

func TestBindsSmallestFittingVolume(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		api.Create(newVolume("small", "", "1Gi"), newVolume("fits", "", "5Gi"), newVolume("large", "", "50Gi"),
			newVolume("other", "x", "5Gi"))
		api.Create(newClaim("c", "", "3Gi"))
		c := claimOf(t, api, "c")
		if c.Status.Phase != corev1.ClaimBound || c.Spec.VolumeName != "fits" ||
			c.Annotations[claim.BindCompleted] != "yes" || c.Annotations[claim.BoundByController] != "yes" {
			t.Errorf("claim is %s to %q, annotations %v", c.Status.Phase, c.Spec.VolumeName, c.Annotations)
		}
		if size := c.Status.Capacity["storage"]; size.String() != "5Gi" || len(c.Status.AccessModes) != 1 {
			t.Errorf("status %+v", c.Status)
		}
		if v := volumeOf(t, api, "fits"); v.Status.Phase != corev1.VolumeBound || v.Spec.ClaimRef.UID != c.UID {
			t.Errorf("volume is %s for %v", v.Status.Phase, v.Spec.ClaimRef)
		}
		for _, other := range []string{"small", "large", "other"} {
			if v := volumeOf(t, api, other); v.Status.Phase != corev1.VolumeAvailable {
				t.Errorf("%s is %s", other, v.Status.Phase)
			}
		}
	})
}

func TestWaitingClaimReportsWhy(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		api.Create(newClaim("c", "", "3Gi"))
		if c := claimOf(t, api, "c"); c.Status.Phase != corev1.ClaimPending {
			t.Errorf("phase %s", c.Status.Phase)
		}
		if n := api.Events.Count(); n[reasonFailed] != 1 {
			t.Errorf("events %v", n)
		}
		api.Create(newVolume("v", "", "3Gi"))
		if c := claimOf(t, api, "c"); c.Spec.VolumeName != "v" {
			t.Errorf("not bound after the volume was created: %+v", c.Spec)
		}
		before := api.Store.Revision()
		apitest.Change(api, newVolume("v", "", "3Gi"), "",
			func(v *corev1.PersistentVolume) { v.Labels = map[string]string{"a": "b"} })
		synctest.Wait()
		if writes := api.Store.Revision() - before; writes != 1 {
			t.Errorf("a label of the volume caused %d writes", writes-1)
		}
	})
}

func TestTwoClaimsNeverShareAVolume(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		api.Create(newClaim("a", "", "1Gi"), newClaim("b", "", "1Gi"), newVolume("v", "", "3Gi"))
		synctest.Wait()
		bound := 0
		for _, c := range apitest.List[*corev1.PersistentVolumeClaim](api, "default") {
			if c.Status.Phase == corev1.ClaimBound {
				bound++
			}
		}
		if bound != 1 {
			t.Errorf("%d claims are bound to one volume", bound)
		}
	})
}

func TestByName(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		byName := func(v string) func(*corev1.PersistentVolumeClaim) {
			return func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = v }
		}
		api.Create(newVolume("v", "", "3Gi"), newVolume("small", "", "1Gi"))
		api.Create(newClaim("mine", "", "2Gi", byName("v")), newClaim("large", "", "2Gi", byName("small")),
			newClaim("early", "", "2Gi", byName("later")))
		if c := claimOf(t, api, "mine"); c.Status.Phase != corev1.ClaimBound || c.Annotations[claim.BoundByController] != "" {
			t.Errorf("%s, annotations %v", c.Status.Phase, c.Annotations)
		}
		if n := api.Events.Count(); n[reasonMismatch] != 1 {
			t.Errorf("events %v", n)
		}
		api.Create(newVolume("later", "", "3Gi"), newClaim("second", "", "1Gi", byName("v")))
		if c := claimOf(t, api, "early"); c.Status.Phase != corev1.ClaimBound {
			t.Error("not bound after its volume was created")
		}
		if c, n := claimOf(t, api, "second"), api.Events.Count(); c.Status.Phase != corev1.ClaimPending ||
			n[reasonFailed] != 1 {
			t.Errorf("a claim for a bound volume is %s, events %v", c.Status.Phase, n)
		}
	})
}

// The status of a claim shows the size of the file system while only the driver has expanded the volume, but not yet a
// node.
func TestVolumeThatNoNodeHasExpanded(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		api.Create(newVolume("v", "", "6Gi", func(v *corev1.PersistentVolume) {
			v.Annotations = map[string]string{claim.PreResizeCapacity: "1Gi"}
		}))
		api.Create(newClaim("c", "", "6Gi"))
		if size := claimOf(t, api, "c").Status.Capacity["storage"]; size.String() != "1Gi" {
			t.Errorf("capacity %s", size.String())
		}
	})
}

// A claim binds only to a volume of its VolumeAttributesClass, also by name, and its status shows the class. When the
// claim requests another class, it stays bound and keeps the current class until the driver reports the change.
func TestVolumeAttributesClass(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		with := func(class string) func(*corev1.PersistentVolume) {
			return func(v *corev1.PersistentVolume) {
				v.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d.example.com", VolumeHandle: v.Name}}
				v.Spec.VolumeAttributesClassName = &class
			}
		}
		wants := func(class, volume string) func(*corev1.PersistentVolumeClaim) {
			return func(c *corev1.PersistentVolumeClaim) {
				c.Spec.VolumeAttributesClassName, c.Spec.VolumeName = &class, volume
			}
		}
		current := func(name string) string {
			c := claimOf(t, api, name)
			is := "none"
			if class := c.Status.CurrentVolumeAttributesClassName; class != nil {
				is = *class
			}
			return fmt.Sprint(c.Status.Phase, " to ", c.Spec.VolumeName, ", ", is)
		}
		api.Create(newVolume("plain", "", "2Gi"), newVolume("silver", "", "2Gi", with("silver")),
			newVolume("gold", "", "5Gi", with("gold")))
		api.Create(newClaim("mismatch", "", "1Gi", wants("gold", "plain")), newClaim("c", "", "1Gi", wants("gold", "")))
		if got := current("mismatch"); got != "Pending to plain, none" || api.Events.Count()[reasonMismatch] != 1 {
			t.Errorf("a claim that names a volume without its class: %s, events %v", got, api.Events.Count())
		}
		if got := current("c"); got != "Bound to gold, gold" {
			t.Errorf("got %s", got)
		}
		apitest.Change(api, claimOf(t, api, "c"), "", wants("silver", "gold"))
		if got := current("c"); got != "Bound to gold, gold" {
			t.Errorf("after a change of the class: %s", got)
		}
		apitest.Change(api, volumeOf(t, api, "gold"), "",
			func(v *corev1.PersistentVolume) { v.Spec.VolumeAttributesClassName = new("silver") })
		if got := current("c"); got != "Bound to gold, gold" {
			t.Errorf("before the driver has reported the change: %s", got)
		}
		apitest.Change(api, claimOf(t, api, "c"), "status",
			func(c *corev1.PersistentVolumeClaim) { c.Status.CurrentVolumeAttributesClassName = new("silver") })
		if got := current("c"); got != "Bound to gold, silver" {
			t.Errorf("after the driver has changed the volume: %s", got)
		}
	})
}

func TestReservedVolumeWaitsForItsClaim(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		api.Create(newVolume("meant", "", "30Gi", func(v *corev1.PersistentVolume) {
			v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "c"}
		}), newVolume("free", "", "1Gi"))
		api.Create(newClaim("other", "", "2Gi"))
		if c := claimOf(t, api, "other"); c.Status.Phase != corev1.ClaimPending {
			t.Error("another claim was bound to the reserved volume")
		}
		api.Create(newClaim("c", "", "1Gi"))
		if c := claimOf(t, api, "c"); c.Spec.VolumeName != "meant" {
			t.Errorf("bound to %q", c.Spec.VolumeName)
		}
	})
}

func TestReclaim(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		policy corev1.PersistentVolumeReclaimPolicy
		by     string
		phase  corev1.PersistentVolumePhase
		event  string
	}{
		{corev1.PersistentVolumeReclaimRetain, "", corev1.VolumeReleased, ""},
		{corev1.PersistentVolumeReclaimDelete, "example.com/x", corev1.VolumeReleased, ""},
		{corev1.PersistentVolumeReclaimDelete, "", corev1.VolumeFailed, reasonNotDeleted},
		{corev1.PersistentVolumeReclaimRecycle, "", corev1.VolumeFailed, reasonNotRecycled},
	} {
		t.Run(string(c.policy)+c.by, func(t *testing.T) {
			within(t, func(t *testing.T, api *apitest.API) {
				api.Create(newVolume("v", "", "1Gi", func(v *corev1.PersistentVolume) {
					v.Spec.PersistentVolumeReclaimPolicy = c.policy
					if c.by != "" {
						v.Annotations = map[string]string{claim.ProvisionedBy: c.by}
					}
				}), newClaim("c", "", "1Gi"))
				claimOf(t, api, "c")
				apitest.Change(api, newClaim("c", "", "1Gi"), "", gone)
				api.Delete(newClaim("c", "", "1Gi"), "")
				if v := volumeOf(t, api, "v"); v.Status.Phase != c.phase {
					t.Errorf("%s: %s", v.Status.Phase, v.Status.Message)
				}
				if n := api.Events.Count(); c.event != "" && n[c.event] != 1 {
					t.Errorf("events %v", n)
				}
				api.Create(newClaim("c", "", "1Gi"))
				if again := claimOf(t, api, "c"); again.Status.Phase != corev1.ClaimPending {
					t.Error("a new claim of the same name was bound to the volume")
				}
			})
		})
	}
}

// The controller leaves the deletion of a volume to the external provisioner that created it, to which it was migrated
// from an in-tree plugin, or whose CSI driver it is of. It keeps the phase Failed that the provisioner reports, and the
// provisioner's finalizer.
func TestExternalDeletion(t *testing.T) {
	t.Parallel()
	for name, annotations := range map[string]map[string]string{
		"provisioned": {claim.ProvisionedBy: "d.example.com"}, "migrated": {claim.MigratedTo: "d.example.com"},
		"of a CSI driver": nil} {
		t.Run(name, func(t *testing.T) {
			within(t, func(t *testing.T, api *apitest.API) {
				api.Create(newVolume("v", "", "1Gi", func(v *corev1.PersistentVolume) {
					v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
					v.Annotations, v.Finalizers = annotations, []string{claim.ContentProtection}
					if annotations == nil {
						v.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{
							CSI: &corev1.CSIPersistentVolumeSource{Driver: "d.example.com", VolumeHandle: "h"}}
					}
				}), newClaim("c", "", "1Gi"))
				claimOf(t, api, "c")
				apitest.Change(api, newClaim("c", "", "1Gi"), "", gone)
				api.Delete(newClaim("c", "", "1Gi"), "")
				if v := volumeOf(t, api, "v"); v.Status.Phase != corev1.VolumeReleased {
					t.Errorf("%s: %s", v.Status.Phase, v.Status.Message)
				}
				apitest.Change(api, newVolume("v", "", "1Gi"), "status", func(v *corev1.PersistentVolume) {
					v.Status.Phase, v.Status.Message = corev1.VolumeFailed, "the volume is busy"
				})
				v := volumeOf(t, api, "v")
				if v.Status.Phase != corev1.VolumeFailed || v.Status.Message != "the volume is busy" {
					t.Errorf("%s: %s", v.Status.Phase, v.Status.Message)
				}
				if !slices.Contains(v.Finalizers, claim.ContentProtection) ||
					v.Annotations[claim.MigratedTo] != annotations[claim.MigratedTo] {
					t.Errorf("finalizers %v, annotations %v", v.Finalizers, v.Annotations)
				}
			})
		})
	}
}

func TestClaimLosesItsVolume(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		api.Create(newVolume("v", "", "1Gi"), newClaim("c", "", "1Gi"))
		claimOf(t, api, "c")
		apitest.Change(api, newVolume("v", "", "1Gi"), "", func(v *corev1.PersistentVolume) { v.Finalizers = nil })
		api.Delete(newVolume("v", "", "1Gi"), "")
		if c, n := claimOf(t, api, "c"), api.Events.Count(); c.Status.Phase != corev1.ClaimLost || n[reasonLost] != 1 {
			t.Errorf("%s, events %v", c.Status.Phase, n)
		}
	})
}

func TestRequestsProvisioning(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		api.Create(newClass("now", "example.com/x", storagev1.VolumeBindingImmediate),
			newClass("later", "example.com/x", storagev1.VolumeBindingWaitForFirstConsumer),
			newClass("hand", claim.NoProvisioner, storagev1.VolumeBindingWaitForFirstConsumer))
		api.Create(newClaim("now", "now", "1Gi"), newClaim("later", "later", "1Gi"), newClaim("none", "missing", "1Gi"))
		if by := claimOf(t, api, "now").Annotations[claim.StorageProvisioner]; by != "example.com/x" {
			t.Errorf("provisioner %q", by)
		}
		if by := claimOf(t, api, "later").Annotations[claim.StorageProvisioner]; by != "" {
			t.Errorf("provisioner %q without a selected node", by)
		}
		if n := api.Events.Count(); n[reasonExternal] != 1 || n[reasonWaitConsumer] != 1 || n[reasonNotMade] != 1 {
			t.Errorf("events %v", n)
		}
		api.Create(newVolume("free", "later", "1Gi"))
		if c := claimOf(t, api, "later"); c.Spec.VolumeName != "" {
			t.Error("bound before the scheduler selected a node")
		}
		apitest.Change(api, newClaim("later", "", "1Gi"), "", func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{claim.SelectedNode: "n"}
		})
		if by := claimOf(t, api, "later").Annotations[claim.StorageProvisioner]; by != "example.com/x" {
			t.Errorf("provisioner %q with a selected node", by)
		}
		api.Create(newClass("missing", "example.com/y", storagev1.VolumeBindingImmediate))
		if by := claimOf(t, api, "none").Annotations[claim.StorageProvisioner]; by != "example.com/y" {
			t.Errorf("provisioner %q after the class was created", by)
		}
	})
}

func TestDefaultClassCreatedAfterClaim(t *testing.T) {
	within(t, func(t *testing.T, api *apitest.API) {
		api.Create(newClaim("open", "", "1Gi", func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = nil }),
			newClaim("none", "", "1Gi"))
		class := newClass("d", "example.com/x", storagev1.VolumeBindingImmediate)
		class.Annotations = map[string]string{claim.DefaultClass: "true"}
		api.Create(class)
		if got := claim.Class(claimOf(t, api, "open")); got != "d" {
			t.Errorf("class %q", got)
		}
		if got := claim.Class(claimOf(t, api, "none")); got != "" {
			t.Errorf("a claim with an empty class has the class %q", got)
		}
	})
}
