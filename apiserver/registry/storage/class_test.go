package storage

import (
	"fmt"
	"strings"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/yaml"

	"monopod/apiserver/registry/kind/kindtest"
)

func TestCreation(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1025)
	for _, c := range []struct{ kind, obj, want string }{
		{"StorageClass",
			`{provisioner: Example.com/disk, parameters: {a: b}, allowedTopologies: [{matchLabelExpressions: [{key: zone, ` +
				`values: [a, b]}]}]}`, ""},
		{"StorageClass", `{}`, "provisioner: Required value"},
		{"StorageClass", `{provisioner: "a b", reclaimPolicy: Recycle, volumeBindingMode: Late}`,
			"provisioner: Invalid value\nreclaimPolicy: Unsupported value\nvolumeBindingMode: Unsupported value"},
		{"StorageClass", `{provisioner: a, parameters: {"": b}}`, "parameters: Invalid value"},
		{"StorageClass", `{provisioner: a, parameters: {` + many(513) + `}}`, "parameters: Too long"},
		{"StorageClass", `{provisioner: a, parameters: {a: ` + strings.Repeat("x", 256<<10) + `}}`, "parameters: Too long"},
		{"StorageClass",
			`{provisioner: a, allowedTopologies: [{matchLabelExpressions: [{key: "a b"}, {key: z, values: [a, a]}, {key: z, ` +
				`values: [b]}]}]}`,
			"allowedTopologies[0].matchLabelExpressions[0].values: Required value\n" +
				"allowedTopologies[0].matchLabelExpressions[0].key: Invalid value\n" +
				"allowedTopologies[0].matchLabelExpressions[1].values[1]: Duplicate value\n" +
				"allowedTopologies[0].matchLabelExpressions[2].key: Duplicate value"},
		{"StorageClass",
			`{provisioner: a, allowedTopologies: [{matchLabelExpressions: [{key: a, values: [b]}]}, ` +
				`{matchLabelExpressions: [{key: a, values: [b]}]}]}`,
			"allowedTopologies[1].matchLabelExpressions: Duplicate value"},
		{"VolumeAttributesClass", `{driverName: a, parameters: {a: b}}`, ""},
		{"VolumeAttributesClass", `{}`, "driverName: Required value\nparameters: Required value"},
		{"CSIDriver", `{metadata: {name: csi.example.com}}`, ""},
		{"CSIDriver",
			`{metadata: {name: a}, spec: {fsGroupPolicy: Never, volumeLifecycleModes: [Sometimes], ` +
				`nodeAllocatableUpdatePeriodSeconds: 9}}`,
			"spec.fsGroupPolicy: Unsupported value\nspec.volumeLifecycleModes: Unsupported value\n" +
				"spec.nodeAllocatableUpdatePeriodSeconds: Invalid value"},
		{"CSIDriver",
			`{metadata: {name: a}, spec: {tokenRequests: [{audience: a, expirationSeconds: 599}, {audience: a, ` +
				`expirationSeconds: 1}, {audience: b, expirationSeconds: 4294967297}]}}`,
			"spec.tokenRequests[0].expirationSeconds: Invalid value\nspec.tokenRequests[1].audience: Duplicate value\n" +
				"spec.tokenRequests[2].expirationSeconds: Invalid value"},
		{"CSIDriver", `{metadata: {name: a}, spec: {serviceAccountTokenInSecrets: true}}`,
			"spec.serviceAccountTokenInSecrets: Invalid value"},
		{"CSINode", `{spec: {drivers: [{name: a, nodeID: n1, topologyKeys: [x/y], allocatable: {count: 3}}]}}`, ""},
		{"CSINode", `{spec: {drivers: [{}, {name: a, nodeID: n1}, {name: a, nodeID: ` + strings.Repeat("x", 257) +
			`, allocatable: {count: -1}, topologyKeys: ["", z, z, "a b"]}]}}`,
			"spec.drivers[0].name: Required value\nspec.drivers[0].nodeID: Required value\n" +
				"spec.drivers[2].nodeID: Invalid value\nspec.drivers[2].allocatable.count: Invalid value\n" +
				"spec.drivers[2].name: Duplicate value\nspec.drivers[2]: Required value\nspec.drivers[2]: Invalid value\n" +
				"spec.drivers[2]: Invalid value\nspec.drivers[2]: Duplicate value\nspec.drivers[2]: Invalid value"},
		{"CSIStorageCapacity", `{storageClassName: a, capacity: 1Gi}`, ""},
		{"CSIStorageCapacity",
			`{storageClassName: A_b, capacity: -1, maximumVolumeSize: -1, nodeTopology: {matchLabels: {"a b": c}}}`,
			"nodeTopology.matchLabels: Invalid value\nstorageClassName: Invalid value\ncapacity: Invalid value\n" +
				"maximumVolumeSize: Invalid value"},
		{"VolumeAttachment", `{spec: {attacher: a, nodeName: n1, source: {persistentVolumeName: v}}}`, ""},
		{"VolumeAttachment", `{spec: {}}`,
			"spec.attacher: Required value\nspec.source: Required value\nspec.nodeName: Invalid value"},
		{"VolumeAttachment", `{spec: {attacher: a, nodeName: n1, source: {persistentVolumeName: v, inlineVolumeSpec: {}}}}`,
			"spec.source: Forbidden"},
		{"VolumeAttachment", `{spec: {attacher: a, nodeName: n1, source: {persistentVolumeName: ""}}}`,
			"spec.source.persistentVolumeName: Required value"},
		{"VolumeAttachment",
			`{spec: {attacher: a, nodeName: n1, source: {inlineVolumeSpec: {accessModes: [ReadWriteOnce], csi: {driver: a, ` +
				`volumeHandle: b}}}}}`, ""},
		{"VolumeAttachment",
			`{spec: {attacher: a, nodeName: n1, source: {inlineVolumeSpec: {accessModes: [ReadWriteOnce], ` +
				`capacity: {storage: 1}, claimRef: {}, storageClassName: c, persistentVolumeReclaimPolicy: Delete, ` +
				`volumeMode: Block, hostPath: {path: /a}}}}}`,
			"spec.source.inlineVolumeSpec.claimRef: Forbidden\nspec.source.inlineVolumeSpec.capacity: Forbidden\n" +
				"spec.source.inlineVolumeSpec.storageClassName: Forbidden\n" +
				"spec.source.inlineVolumeSpec.persistentVolumeReclaimPolicy: Forbidden\n" +
				"spec.source.inlineVolumeSpec.volumeMode: Forbidden\nspec.source.inlineVolumeSpec.csi: Required value"},
	} {
		r := of(t, c.kind)
		kindtest.WantErrors(t, kindtest.Validate(r, kindtest.Create(t, r, c.obj), nil, ""), c.want)
	}
	a := of(t, "VolumeAttachment")
	old := kindtest.Create(t, a,
		`{spec: {attacher: a, nodeName: n1, source: {persistentVolumeName: v}}, status: {attached: true}}`)
	if old.(*storagev1.VolumeAttachment).Status.Attached {
		t.Error("the creation set status.attached")
	}
	next := kindtest.Update(t, a, old, `{status: {attached: true, attachError: {message: `+long+`, errorCode: -1}}}`,
		"status")
	kindtest.WantErrors(t, kindtest.Validate(a, next, old, "status"), "status.attachError.message: Too long",
		"status.attachError.errorCode: Invalid value")
}

func many(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("k%d: v", i))
	}
	return strings.Join(all, ", ")
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ kind, old, next, want string }{
		{"StorageClass", `{provisioner: a}`, `{provisioner: a, allowVolumeExpansion: true, mountOptions: [ro]}`, ""},
		{"StorageClass", `{provisioner: a}`,
			`{provisioner: b, parameters: {a: b}, reclaimPolicy: Retain, volumeBindingMode: WaitForFirstConsumer}`,
			"parameters: Forbidden\nprovisioner: Forbidden\nreclaimPolicy: Forbidden\nvolumeBindingMode: Invalid value"},
		{"VolumeAttributesClass", `{driverName: a, parameters: {a: b}}`, `{driverName: b, parameters: {a: c}}`,
			"driverName: Forbidden\nparameters: Forbidden"},
		{"CSIDriver", `{metadata: {name: a}}`,
			`{metadata: {name: a}, spec: {podInfoOnMount: true, storageCapacity: true, fsGroupPolicy: File, ` +
				`requiresRepublish: true}}`, ""},
		{"CSIDriver", `{metadata: {name: a}}`,
			`{metadata: {name: a}, spec: {attachRequired: false, volumeLifecycleModes: [Ephemeral]}}`,
			"spec.attachedRequired: Invalid value\nspec.volumeLifecycleModes: Invalid value"},
		{"CSINode", `{spec: {drivers: [{name: a, nodeID: n1}]}}`,
			`{spec: {drivers: [{name: b, nodeID: n1}, {name: a, nodeID: n1, allocatable: {count: 1}}]}}`, ""},
		{"CSINode", `{spec: {drivers: [{name: a, nodeID: n1}]}}`, `{spec: {drivers: [{name: a, nodeID: m}]}}`,
			"spec.drivers: Invalid value"},
		{"CSIStorageCapacity", `{storageClassName: a, capacity: 1Gi}`,
			`{storageClassName: b, capacity: 2Gi, nodeTopology: {}}`,
			"nodeTopology: Invalid value\nstorageClassName: Invalid value"},
		{"VolumeAttachment", `{spec: {attacher: a, nodeName: n1, source: {persistentVolumeName: v}}}`,
			`{spec: {attacher: a, nodeName: m, source: {persistentVolumeName: v}}}`, "spec: Invalid value"},
	} {
		r := of(t, c.kind)
		old := kindtest.Create(t, r, c.old)
		kindtest.WantErrors(t, kindtest.Validate(r, kindtest.Update(t, r, old, c.next, ""), old, ""), c.want)
	}
}

// The status of a CSINode belongs to a feature that is off.
func TestCSINodeHasNoStatus(t *testing.T) {
	t.Parallel()
	r := of(t, "CSINode")
	const status = `, status: {storageHealth: [{name: a}]}}`
	n := kindtest.Create(t, r, `{spec: {drivers: [{name: a, nodeID: n1}]}`+status).(*storagev1.CSINode)
	next := kindtest.Update(t, r, n, `{spec: {drivers: []}`+status, "").(*storagev1.CSINode)
	if len(n.Status.StorageHealth)+len(next.Status.StorageHealth) > 0 {
		t.Errorf("got %+v, %+v", n.Status, next.Status)
	}
}

func TestCSIDriverDefaultsAndGeneration(t *testing.T) {
	t.Parallel()
	r := of(t, "CSIDriver")
	d := kindtest.Create(t, r, `{metadata: {name: a}}`).(*storagev1.CSIDriver)
	s := d.Spec
	if !*s.AttachRequired || *s.PodInfoOnMount || *s.StorageCapacity || *s.FSGroupPolicy != "ReadWriteOnceWithFSType" ||
		*s.RequiresRepublish || *s.SELinuxMount || len(s.VolumeLifecycleModes) != 1 ||
		s.VolumeLifecycleModes[0] != "Persistent" {
		t.Errorf("got %+v", s)
	}
	same := kindtest.Update(t, r, d, `{metadata: {name: a, labels: {a: b}}}`, "")
	other := kindtest.Update(t, r, d, `{metadata: {name: a}, spec: {requiresRepublish: true}}`, "")
	if same.GetGeneration() != d.Generation || other.GetGeneration() != d.Generation+1 {
		t.Errorf("generations %d and %d after %d", same.GetGeneration(), other.GetGeneration(), d.Generation)
	}
}

func TestColumns(t *testing.T) {
	t.Parallel()
	const meta = "metadata: {name: x, creationTimestamp: '2026-01-01T11:00:00Z'}\n"
	const terminating = "metadata: {name: x, creationTimestamp: '2026-01-01T11:00:00Z', " +
		"deletionTimestamp: '2026-01-01T11:00:00Z'}\n"
	const volume = "Name|Capacity|Access Modes|Reclaim " +
		"Policy|Status|Claim|StorageClass|VolumeAttributesClass|Reason|Age / VolumeMode"
	const claim = "Name|Status|Volume|Capacity|Access Modes|StorageClass|VolumeAttributesClass|Age / VolumeMode"
	const class = "Name|Provisioner|ReclaimPolicy|VolumeBindingMode|AllowVolumeExpansion|Age / "
	const driver = "Name|AttachRequired|PodInfoOnMount|StorageCapacity|TokenRequests|RequiresRepublish|Modes|Age / "
	for _, c := range []struct{ kind, headings, obj, row string }{
		{"PersistentVolume", volume, meta +
			"spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteMany, ReadWriteOnce, ReadOnlyMany], " +
			"persistentVolumeReclaimPolicy: Retain, claimRef: {namespace: a, name: b}, storageClassName: slow, " +
			"volumeMode: Block}\nstatus: {phase: Bound, reason: r}",
			"x|1Gi|RWO,ROX,RWX|Retain|Bound|a/b|slow|<unset>|r|60m|Block"},
		{"PersistentVolume", volume, terminating, "x|0|||Terminating|||<unset>||60m|<unset>"},
		{"PersistentVolumeClaim", claim, meta +
			"spec: {volumeName: v, storageClassName: slow, volumeAttributesClassName: gold, volumeMode: Filesystem}\n" +
			"status: {phase: Bound, capacity: {storage: 2Gi}, accessModes: [ReadWriteOncePod]}",
			"x|Bound|v|2Gi|RWOP|slow|gold|60m|Filesystem"},
		{"PersistentVolumeClaim", claim,
			"metadata: {name: x, creationTimestamp: '2026-01-01T11:00:00Z', " +
				"annotations: {volume.beta.kubernetes.io/storage-class: old}}\nstatus: {phase: Pending, capacity: {storage: 2Gi}}",
			"x|Pending||||old|<unset>|60m|<unset>"},
		{"StorageClass", class,
			"metadata: {name: x, creationTimestamp: '2026-01-01T11:00:00Z', " +
				"annotations: {storageclass.kubernetes.io/is-default-class: 'true'}}\nprovisioner: p",
			"x (default)|p|Delete|Immediate|false|60m"},
		{"StorageClass", class, meta +
			"provisioner: p\nreclaimPolicy: Retain\nvolumeBindingMode: WaitForFirstConsumer\nallowVolumeExpansion: true",
			"x|p|Retain|WaitForFirstConsumer|true|60m"},
		{"CSIDriver", driver, meta, "x|true|false|false|<unset>|false|<none>|60m"},
		{"CSIDriver", driver, meta +
			"spec: {attachRequired: false, tokenRequests: [{audience: a}, {audience: b}], volumeLifecycleModes: [Persistent, " +
			"Ephemeral]}", "x|false|false|false|a,b|false|Persistent,Ephemeral|60m"},
		{"CSINode", "Name|Drivers|Age / ", meta + "spec: {drivers: [{name: a}, {name: b}]}", "x|2|60m"},
		{"CSIStorageCapacity", "Name|StorageClassName|Capacity / ", meta + "storageClassName: slow", "x|slow|<unset>"},
		{"CSIStorageCapacity", "Name|StorageClassName|Capacity / ", meta + "capacity: 1Gi", "x||1Gi"},
		{"VolumeAttachment", "Name|Attacher|PV|Node|Attached|Age / ", meta +
			"spec: {attacher: a, nodeName: n1, source: {persistentVolumeName: v}}\nstatus: {attached: true}",
			"x|a|v|n1|true|60m"},
		{"VolumeAttributesClass", "Name|DriverName|Age / ", meta + "driverName: d", "x|d|60m"},
	} {
		r := of(t, c.kind)
		if got := kindtest.Headings(r.Columns); got != c.headings {
			t.Errorf("%s: %s", c.kind, got)
		}
		obj := r.New()
		if err := yaml.UnmarshalStrict([]byte(c.obj), obj); err != nil {
			t.Fatal(err)
		}
		if got := kindtest.Row(t, r.Columns, obj); got != c.row {
			t.Errorf("%s: got %s, want %s", c.kind, got, c.row)
		}
		if r.Columns[0].Format != "name" {
			t.Errorf("%s: the first column does not have the format name", c.kind)
		}
	}
}
