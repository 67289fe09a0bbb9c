package rules

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/controllers/scheduler/cluster"
)

// The functions below return volume sources of disks that a pod uses without a claim.
func gce(name string, readOnly bool) corev1.VolumeSource {
	return corev1.VolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: name, ReadOnly: readOnly}}
}

func aws(id string, readOnly bool) corev1.VolumeSource {
	return corev1.VolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: id,
		ReadOnly: readOnly}}
}

func iscsi(portal, iqn string, lun int32, readOnly bool) corev1.VolumeSource {
	return corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{TargetPortal: portal, IQN: iqn, Lun: lun,
		ReadOnly: readOnly}}
}

func rbd(pool, image string, readOnly bool, monitors ...string) corev1.VolumeSource {
	return corev1.VolumeSource{RBD: &corev1.RBDVolumeSource{RBDPool: pool, RBDImage: image, CephMonitors: monitors,
		ReadOnly: readOnly}}
}

func with(sources ...corev1.VolumeSource) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for _, s := range sources {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: s})
		}
	}
}

// Two pods on a node cannot use the same disk unless both mount it read-only. For AWS disks this exception does not
// apply.
func TestDiskConflicts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		there, pod corev1.VolumeSource
		conflict   bool
	}{
		"GCE":                   {gce("d", false), gce("d", false), true},
		"GCE, another":          {gce("d", false), gce("e", false), false},
		"GCE, one read-only":    {gce("d", false), gce("d", true), true},
		"GCE, both read-only":   {gce("d", true), gce("d", true), false},
		"AWS":                   {aws("d", false), aws("d", false), true},
		"AWS, another":          {aws("d", false), aws("e", false), false},
		"AWS, both read-only":   {aws("d", true), aws("d", true), true},
		"iSCSI":                 {iscsi("p", "q", 0, false), iscsi("p", "q", 0, false), true},
		"iSCSI, the same IQN":   {iscsi("p", "q", 0, false), iscsi("other", "q", 1, false), true},
		"iSCSI, another":        {iscsi("p", "q", 0, false), iscsi("p", "r", 0, false), false},
		"iSCSI, both read-only": {iscsi("p", "q", 0, true), iscsi("p", "q", 0, true), false},
		"Ceph":                  {rbd("pool", "i", false, "a", "b"), rbd("pool", "i", false, "b", "c"), true},
		"Ceph, another cluster": {rbd("pool", "i", false, "a", "b"), rbd("pool", "i", false, "c"), false},
		"Ceph, another pool":    {rbd("pool", "i", false, "a"), rbd("other", "i", false, "a"), false},
		"Ceph, another image":   {rbd("pool", "i", false, "a"), rbd("pool", "j", false, "a"), false},
		"Ceph, both read-only":  {rbd("pool", "i", true, "a"), rbd("pool", "i", true, "a"), false},
		"different kinds":       {gce("d", false), aws("d", false), false},
		"no disk":               {corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, gce("d", false), false},
	} {
		t.Run(name, func(t *testing.T) {
			all := sketch("a", "b")
			there := cluster.NewPod(testPod(named("there"), with(c.there)))
			all.Add(there, "a")
			pod := testPod(with(gce("own", false), c.pod))
			fit, why := fitting(all, pod)
			if c.conflict && (fit != "b" || why != whyDisk+" final=false") || !c.conflict && fit != "a b" {
				t.Errorf("fits on %s; %s", fit, why)
			}
			gone := cluster.Change{ChangeKind: cluster.PodGone, Pod: there}
			if got := claimFreed(all, cluster.NewPod(pod), gone); got != c.conflict {
				t.Errorf("the deletion of the other pod wakes the pod: %t, want %t", got, c.conflict)
			}
		})
	}
}
