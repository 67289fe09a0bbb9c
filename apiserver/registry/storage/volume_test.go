package storage

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/kindtest"
)

func of(t *testing.T, name string) kind.Resource {
	t.Helper()
	for _, r := range Resources() {
		if r.Kind == name {
			return r
		}
	}
	t.Fatalf("no kind %s", name)
	return kind.Resource{}
}

// base is the spec of a valid volume without its source.
const base = `capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce]`

func TestVolumeCreation(t *testing.T) {
	t.Parallel()
	r := of(t, "PersistentVolume")
	for spec, want := range map[string]string{
		base + `, hostPath: {path: /data}`: "",
		base + `, nfs: {server: a, path: /b}, storageClassName: slow, volumeMode: Block, ` +
			`persistentVolumeReclaimPolicy: Recycle`: "",
		base + `, local: {path: /mnt}, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: a, ` +
			`operator: Exists}]}]}}`: "",
		base + `, csi: {driver: Csi.example.com, volumeHandle: h, nodePublishSecretRef: {name: a, namespace: b}}, ` +
			`volumeAttributesClassName: gold`: "",
		base: "spec: Required value",
		``:   "spec.accessModes: Required value\nspec.capacity: Required value\nspec: Required value",
		`capacity: {cpu: 1}, accessModes: [Sometimes], hostPath: {path: /a}`:                           "spec.accessModes: Unsupported value\nspec.capacity: Unsupported value",
		`capacity: {storage: 0}, accessModes: [ReadWriteOnce], hostPath: {path: /a}`:                   "spec.capacity[storage]: Invalid value",
		`capacity: {storage: 1, cpu: 1}, accessModes: [ReadWriteOnce], hostPath: {path: /a}`:           "spec.capacity: Unsupported value",
		`capacity: {storage: 1}, accessModes: [ReadWriteOncePod, ReadWriteMany], hostPath: {path: /a}`: "spec.accessModes: Forbidden",
		base + `, hostPath: {}`: "spec.hostPath.path: Required value",
		base + `, hostPath: {path: /a/../b, type: Door}`: "spec.hostPath.path: Invalid value\n" +
			"spec.hostPath.type: Unsupported value",
		base + `, hostPath: {path: /}, persistentVolumeReclaimPolicy: Recycle`: "spec.persistentVolumeReclaimPolicy: " +
			"Forbidden",
		base + `, hostPath: {path: /a}, persistentVolumeReclaimPolicy: Burn`: "spec.persistentVolumeReclaimPolicy: " +
			"Unsupported value",
		base + `, hostPath: {path: /a}, nfs: {server: a, path: /b}`:      "spec.nfs: Forbidden",
		base + `, hostPath: {path: /a}, storageClassName: A_b`:           "spec.storageClassName: Invalid value",
		base + `, hostPath: {path: /a}, volumeMode: Tape`:                "spec.volumeMode: Unsupported value",
		base + `, hostPath: {path: /a}, volumeAttributesClassName: gold`: "spec.csi: Required value",
		base + `, hostPath: {path: /a}, volumeAttributesClassName: ""`:   "spec.volumeAttributesClassName: Required value",
		base + `, hostPath: {path: /a}, nodeAffinity: {}`:                "spec.nodeAffinity.required: Required value",
		base + `, hostPath: {path: /a}, nodeAffinity: {required: {}}`: "spec.nodeAffinity.required.nodeSelectorTerms: " +
			"Required value",
		base + `, local: {path: /mnt}`: "spec.nodeAffinity: Required value",
		base + `, nfs: {path: b}`:      "spec.nfs.server: Required value\nspec.nfs.path: Invalid value",
		base + `, csi: {driver: "a b", controllerExpandSecretRef: {name: a}}`: "spec.csi.driver: Invalid value\n" +
			"spec.csi.volumeHandle: Required value\nspec.csi.controllerExpandSecretRef.namespace: Required value",
		base + `, iscsi: {iqn: a, lun: 300}`:         "spec.iscsi.targetPortal: Required value\nspec.iscsi.lun: Invalid value",
		base + `, fc: {}`:                            "spec.fc.targetWWNs: Required value",
		base + `, fc: {targetWWNs: [a], wwids: [b]}`: "spec.fc.targetWWNs: Invalid value",
		base + `, fc: {targetWWNs: [a]}`:             "spec.fc.lun: Required value",
		base + `, rbd: {}`:                           "spec.rbd.monitors: Required value\nspec.rbd.image: Required value",
		base + `, cephfs: {}`:                        "spec.cephfs.monitors: Required value",
		base + `, awsElasticBlockStore: {}`:          "spec.awsElasticBlockStore.volumeID: Required value",
		base + `, azureDisk: {diskName: a}`:          "spec.azureDisk.diskURI: Required value",
		base + `, gcePersistentDisk: {}`:             "spec.persistentDisk.pdName: Required value",
	} {
		obj := kindtest.Create(t, r, `{metadata: {name: a}, spec: {`+spec+`}}`)
		kindtest.WantErrors(t, kindtest.Validate(r, obj, nil, ""), want)
	}
}

func TestVolumeDefaults(t *testing.T) {
	t.Parallel()
	v := kindtest.Create(t, of(t, "PersistentVolume"),
		`{metadata: {creationTimestamp: "2026-01-01T00:00:00Z"}, spec: {hostPath: {path: /a}}, status: {phase: Bound}}`).(*corev1.PersistentVolume)
	if v.Spec.PersistentVolumeReclaimPolicy != "Retain" || *v.Spec.VolumeMode != "Filesystem" ||
		v.Status.Phase != "Pending" ||
		*v.Spec.HostPath.Type != "" || !v.Status.LastPhaseTransitionTime.Equal(&v.CreationTimestamp) {
		t.Errorf("got %+v", v)
	}
}

func TestVolumeUpdate(t *testing.T) {
	t.Parallel()
	r := of(t, "PersistentVolume")
	for _, c := range []struct{ old, next, want string }{
		{`hostPath: {path: /a}`, `hostPath: {path: /b}`, "spec.persistentvolumesource: Forbidden"},
		{`hostPath: {path: /a}`, `nfs: {server: a, path: /a}`, "spec.persistentvolumesource: Forbidden"},
		{`hostPath: {path: /a}`, `hostPath: {path: /a}, volumeMode: Block`, "volumeMode: Invalid value"},
		{`hostPath: {path: /a}`, `hostPath: {path: /a}, persistentVolumeReclaimPolicy: Delete, claimRef: {name: x}`, ""},
		{`csi: {driver: a, volumeHandle: b}`, `csi: {driver: a, volumeHandle: b, controllerExpandSecretRef: {name: a, ` +
			`namespace: b}}`, ""},
		{`csi: {driver: a, volumeHandle: b, controllerExpandSecretRef: {name: a, namespace: b}}`,
			`csi: {driver: a, volumeHandle: b}`, "spec.persistentvolumesource: Forbidden"},
		{`csi: {driver: a, volumeHandle: b}, volumeAttributesClassName: gold`, `csi: {driver: a, volumeHandle: b}`,
			"spec.volumeAttributesClassName: Forbidden"},
	} {
		old := kindtest.Create(t, r, `{spec: {`+base+`, `+c.old+`}}`)
		next := kindtest.Update(t, r, old, `{spec: {`+base+`, `+c.next+`}}`, "")
		kindtest.WantErrors(t, kindtest.Validate(r, next, old, ""), c.want)
	}
}

func TestVolumeRecordsPhaseTransition(t *testing.T) {
	t.Parallel()
	r := of(t, "PersistentVolume")
	old := kindtest.Create(t, r, `{metadata: {creationTimestamp: "2026-01-01T00:00:00Z"}, spec: {`+base+
		`, hostPath: {path: /a}}}`).(*corev1.PersistentVolume)
	same := kindtest.Update(t, r, old, `{spec: {capacity: {storage: 9Gi}}, status: {phase: Pending, message: hm}}`,
		"status").(*corev1.PersistentVolume)
	if !same.Status.LastPhaseTransitionTime.Equal(old.Status.LastPhaseTransitionTime) ||
		same.Spec.Capacity.Storage().String() != "1Gi" {
		t.Errorf("got %+v", same)
	}
	moved := kindtest.Update(t, r, old, `{status: {phase: Available}}`, "status").(*corev1.PersistentVolume)
	if at := moved.Status.LastPhaseTransitionTime; at == nil || !at.Time.Equal(kindtest.Now()) {
		t.Errorf("changed at %v", at)
	}
	said := kindtest.Update(t, r, old, `{status: {phase: Available, lastPhaseTransitionTime: "2026-01-01T00:00:05Z"}}`,
		"status").(*corev1.PersistentVolume)
	if at := said.Status.LastPhaseTransitionTime; !at.Equal(new(metav1.Date(2026, 1, 1, 0, 0, 5, 0, time.UTC))) {
		t.Errorf("changed at %v, want the time that the writer set", at)
	}
}

const claimBase = `accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}`

func TestClaimCreation(t *testing.T) {
	t.Parallel()
	r := of(t, "PersistentVolumeClaim")
	for spec, want := range map[string]string{
		claimBase: "",
		claimBase + `, storageClassName: "", selector: {matchLabels: {a: b}}, volumeName: v`: "",
		``: "spec.accessModes: Required value\nspec.resources[storage]: Required value",
		`accessModes: [Sometimes], resources: {requests: {storage: 0}}`:                           "spec.accessModes: Unsupported value\nspec.resources[storage]: Invalid value",
		`accessModes: [ReadWriteOncePod, ReadWriteOnce], resources: {requests: {storage: 1}}`:     "spec.accessModes: Forbidden",
		claimBase + `, selector: {matchExpressions: [{key: a, operator: Near}]}`:                  "spec.selector.matchExpressions[0].operator: Invalid value",
		claimBase + `, storageClassName: A_b`:                                                     "spec.storageClassName: Invalid value",
		claimBase + `, volumeMode: Tape`:                                                          "spec.volumeMode: Unsupported value",
		claimBase + `, volumeAttributesClassName: A_b`:                                            "spec.volumeAttributesClassName: Invalid value",
		claimBase + `, dataSource: {kind: PersistentVolumeClaim, name: a}`:                        "",
		claimBase + `, dataSourceRef: {apiGroup: example.com, kind: Book, name: a, namespace: b}`: "",
		claimBase + `, dataSource: {kind: PersistentVolumeClaim}`:                                 "spec.dataSource.name: Required value\nspec.dataSourceRef.name: Required value",
		claimBase + `, dataSourceRef: {kind: Secret, name: a}`:                                    "spec.dataSource: Invalid value\nspec.dataSourceRef: Invalid value",
		claimBase + `, dataSourceRef: {apiGroup: "A b", kind: Book, name: a}`:                     "spec.dataSource.apiGroup: Invalid value\nspec.dataSourceRef.apiGroup: Invalid value",
		claimBase + `, dataSource: {kind: PersistentVolumeClaim, name: a}, dataSourceRef: {kind: PersistentVolumeClaim, ` +
			`name: b}`: "spec: Invalid value",
		claimBase + `, dataSource: {kind: PersistentVolumeClaim, name: a}, dataSourceRef: {kind: PersistentVolumeClaim, ` +
			`name: a, namespace: b}`: "",
	} {
		obj := kindtest.Create(t, r, `{metadata: {name: a}, spec: {`+spec+`}}`)
		kindtest.WantErrors(t, kindtest.Validate(r, obj, nil, ""), want)
	}
}

func TestClaimSourcesAreSynchronized(t *testing.T) {
	t.Parallel()
	r := of(t, "PersistentVolumeClaim")
	for spec, want := range map[string]string{
		`dataSource: {kind: PersistentVolumeClaim, name: a}`:                                "a a",
		`dataSourceRef: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: a}`: "a a",
		`dataSourceRef: {apiGroup: example.com, kind: Book, name: a}`:                       "a a",
		`dataSourceRef: {kind: PersistentVolumeClaim, name: a, namespace: b}`:               "- -",
		`dataSource: {apiGroup: example.com, kind: Book, name: a}, dataSourceRef: {apiGroup: example.com, kind: Book, ` +
			`name: a}`: "a a",
		`dataSource: {apiGroup: other.example.com, kind: VolumeSnapshot, name: a}`: "- -",
		`dataSource: {apiGroup: example.com, kind: Book, name: a}`:                 "- -",
	} {
		claim := kindtest.Create(t, r, `{spec: {`+spec+`}}`).(*corev1.PersistentVolumeClaim)
		from, ref := "-", "-"
		if s := claim.Spec.DataSource; s != nil {
			from = s.Name
		}
		if s := claim.Spec.DataSourceRef; s != nil {
			ref = s.Name
		}
		if got := from + " " + ref; got != want {
			t.Errorf("%s: got %s, want %s", spec, got, want)
		}
	}
}

func TestClaimUpdate(t *testing.T) {
	t.Parallel()
	r := of(t, "PersistentVolumeClaim")
	bigger := strings.Replace(claimBase, "1Gi", "2Gi", 1)
	for name, c := range map[string]struct{ phase, capacity, old, next, want string }{
		"nothing":                   {"Bound", "1Gi", claimBase, claimBase, ""},
		"grow":                      {"Bound", "1Gi", claimBase, bigger, ""},
		"expand before it is bound": {"Pending", "", claimBase, bigger, "spec: Forbidden"},
		"shrink":                    {"Bound", "2Gi", bigger, claimBase, "spec.resources.requests.storage: Forbidden"},
		"cancel an expansion":       {"Bound", "512Mi", bigger, claimBase, ""},
		"volume":                    {"Pending", "", claimBase, claimBase + ", volumeName: v", ""},
		"another volume": {"Bound", "1Gi", claimBase + ", volumeName: v", claimBase + ", volumeName: w",
			"spec: Forbidden"},
		"set the class of a pending": {"Pending", "", claimBase, claimBase + ", storageClassName: slow", ""},
		"another class": {"Pending", "", claimBase + ", storageClassName: fast", claimBase +
			", storageClassName: slow", "spec: Forbidden"},
		"modes": {"Bound", "1Gi", claimBase, strings.Replace(claimBase, "Once", "Many", 1), "spec: Forbidden"},
		"volume mode": {"Bound", "1Gi", claimBase, claimBase + ", volumeMode: Block",
			"spec: Forbidden\nvolumeMode: Invalid value"},
		"attributes": {"Bound", "1Gi", claimBase + ", volumeAttributesClassName: a", claimBase +
			", volumeAttributesClassName: b", ""},
		"attributes of a pending": {"Pending", "", claimBase + ", volumeAttributesClassName: a", claimBase +
			", volumeAttributesClassName: b", "spec: Forbidden"},
		"attributes removed": {"Bound",
			"1Gi}, currentVolumeAttributesClassName: a, allocatedResources: {storage: 1Gi", claimBase +
				", volumeAttributesClassName: a", claimBase, "spec.volumeAttributesClassName: Forbidden"},
		"attributes never applied": {"Bound", "1Gi", claimBase + ", volumeAttributesClassName: a", claimBase, ""},
		"empty attributes": {"Bound", "1Gi", claimBase + ", volumeAttributesClassName: a", claimBase +
			`, volumeAttributesClassName: ""`, ""},
		"attributes emptied": {"Bound",
			"1Gi}, currentVolumeAttributesClassName: a, allocatedResources: {storage: 1Gi", claimBase +
				", volumeAttributesClassName: a", claimBase + `, volumeAttributesClassName: ""`,
			"spec.volumeAttributesClassName: Forbidden"},
		"the storage request itself": {"Bound", "1Gi", claimBase, "accessModes: [ReadWriteOnce]",
			"spec.resources[storage]: Required value\nspec: Forbidden\nspec.resources.requests.storage: Forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old := kindtest.Create(t, r, `{spec: {`+c.old+`}}`).(*corev1.PersistentVolumeClaim)
			status := `{status: {phase: ` + c.phase + `}}`
			if c.capacity != "" {
				status = `{status: {phase: ` + c.phase + `, capacity: {storage: ` + c.capacity + `}}}`
			}
			old = kindtest.Update(t, r, old, status, "status").(*corev1.PersistentVolumeClaim)
			next := kindtest.Update(t, r, old, `{spec: {`+c.next+`}}`, "")
			kindtest.WantErrors(t, kindtest.Validate(r, next, old, ""), c.want)
		})
	}
}

func TestClaimStatus(t *testing.T) {
	t.Parallel()
	r := of(t, "PersistentVolumeClaim")
	old := kindtest.Create(t, r, `{spec: {`+claimBase+`}, status: {phase: Bound}}`).(*corev1.PersistentVolumeClaim)
	if old.Status.Phase != corev1.ClaimPending || *old.Spec.VolumeMode != corev1.PersistentVolumeFilesystem {
		t.Errorf("got %+v", old)
	}
	next := kindtest.Update(t, r, old, `{spec: {volumeName: x}, status: {phase: Bound, capacity: {storage: -1}, `+
		`allocatedResources: {storage: -1}}}`, "status").(*corev1.PersistentVolumeClaim)
	kindtest.WantErrors(t, kindtest.Validate(r, next, old, "status"), "status.capacity[storage]: Invalid value",
		"status.allocatedResources[storage]: Invalid value")
	if next.Spec.VolumeName != "" || next.Status.Phase != corev1.ClaimBound {
		t.Errorf("got %+v", next)
	}
	for status, want := range map[string]string{
		`allocatedResources: {storage: 2Gi, example.com/iops: 3}, allocatedResourceStatuses: {storage: NodeResizePending}`: "",
		`allocatedResources: {cpu: 1}`:                      "status.allocatedResources: Unsupported value",
		`allocatedResources: {requests.kubernetes.io/x: 1}`: "status.allocatedResources: Unsupported value",
		`allocatedResources: {"a b": 1}`:                    "status.allocatedResources: Invalid value",
		`allocatedResourceStatuses: {storage: Someday}`:     "status.allocatedResourceStatuses: Unsupported value",
		`healthStatus: {}`:                                  "",
	} {
		next := kindtest.Update(t, r, old, `{status: {`+status+`}}`, "status").(*corev1.PersistentVolumeClaim)
		kindtest.WantErrors(t, kindtest.Validate(r, next, old, "status"), want)
		if next.Status.HealthStatus != nil {
			t.Error("a field of a disabled feature was stored")
		}
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	const annotated = `metadata: {annotations: {volume.beta.kubernetes.io/storage-class: slow}}`
	for _, c := range []struct{ kind, obj, want string }{
		{"CSIDriver", `{spec: {tokenRequests: [{audience: a}]}}`,
			"spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, " +
				"set to true to prevent possible logging of tokens in volume attributes"},
		{"CSIDriver", `{spec: {tokenRequests: [{audience: a}], serviceAccountTokenInSecrets: false}}`, ""},
		{"PersistentVolume", `{` + annotated + `, spec: {local: {path: /a}}}`,
			`metadata.annotations[volume.beta.kubernetes.io/storage-class]: deprecated since v1.8; use "storageClassName" ` +
				`attribute instead`},
		{"PersistentVolume", `{spec: {hostPath: {path: /a}, persistentVolumeReclaimPolicy: Recycle}}`,
			"spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, " +
				"the recommended approach is to use dynamic provisioning."},
		{"PersistentVolume", `{spec: {nfs: {server: a, path: /b}}}`,
			"spec: the node mounts PersistentVolumes of types csi and hostPath and local; pods that use this volume do not start"},
		{"PersistentVolumeClaim", `{` + annotated + `}`,
			`metadata.annotations[volume.beta.kubernetes.io/storage-class]: deprecated since v1.8; use "storageClassName" ` +
				`attribute instead`},
		{"PersistentVolumeClaim", `{spec: {resources: {requests: {storage: 1500m}}}}`,
			`spec.resources.requests[storage]: fractional byte value "1500m" is invalid, must be an integer`},
		{"PersistentVolumeClaim", `{spec: {` + claimBase + `}}`, ""},
	} {
		r := of(t, c.kind)
		if got := strings.Join(r.Warnings(kindtest.Create(t, r, c.obj), nil), "\n"); got != c.want {
			t.Errorf("%s: got %s", c.obj, got)
		}
	}
}
