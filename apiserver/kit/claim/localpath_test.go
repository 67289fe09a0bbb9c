package claim_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/claim"
)

// The path of a volume of the provisioner is in the data folder into which the state was restored. Other volumes keep
// their path.
func TestWithLocalPath(t *testing.T) {
	t.Parallel()
	const dir = "/new/volumes"
	for _, c := range []struct{ by, path, want string }{
		{claim.Provisioner, "/new/volumes/pvc-1", "/new/volumes/pvc-1"},
		{claim.Provisioner, "/var/lib/monopod/volumes/pvc-1", "/new/volumes/pvc-1"},
		{claim.Provisioner, "/var/lib/monopod/volumes/pvc-2", "/var/lib/monopod/volumes/pvc-2"},
		{claim.Provisioner, "/mnt/disk/pvc-1", "/mnt/disk/pvc-1"},
		{"", "/var/lib/monopod/volumes/pvc-1", "/var/lib/monopod/volumes/pvc-1"},
	} {
		v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-1",
			Annotations: map[string]string{claim.ProvisionedBy: c.by}}}
		v.Spec.Local = &corev1.LocalVolumeSource{Path: c.path}
		if got := claim.WithLocalPath(v, dir).Spec.Local.Path; got != c.want || v.Spec.Local.Path != c.path {
			t.Errorf("%s of %q: got %s, want %s", c.path, c.by, got, c.want)
		}
	}
	device := &corev1.PersistentVolume{}
	if claim.WithLocalPath(device, dir) != device {
		t.Error("another type of volume was copied")
	}
}
