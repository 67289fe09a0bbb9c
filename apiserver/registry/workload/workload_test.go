package workload_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/kindtest"
	"monopod/apiserver/registry/workload"
)

// Valid objects. web is valid for each kind with a selector and a template.
const (
	web = `{metadata: {name: x, labels: {own: label}}, spec: {replicas: 2, selector: {matchLabels: {a: b}}, ` +
		`template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: d}]}}}}`
	daemon = `{metadata: {name: x}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, ` +
		`spec: {nodeSelector: {k: v}, containers: [{name: c, image: d}]}}}}`
	oldWeb = `{metadata: {name: x}, spec: {replicas: 2, template: {metadata: {labels: {a: b}}, ` +
		`spec: {containers: [{name: c, image: d}]}}}}`
	stateful = `{metadata: {name: x}, spec: {replicas: 2, serviceName: s, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: d, volumeMounts: [{name: data, mountPath: /data}]}]}},
  volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]}}`
	revision = `{metadata: {name: x}, data: {a: b}, revision: 1}`
)

func TestGood(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"ReplicaSet": web, "Deployment": web, "DaemonSet": daemon, "StatefulSet": stateful,
		"ReplicationController": oldWeb, "ControllerRevision": revision,
	} {
		r := kindtest.Of(t, workload.Resources(), name)
		kindtest.WantErrors(t, kindtest.Validate(r, kindtest.Create(t, r, text), nil, ""))
	}
}

func TestBadObjects(t *testing.T) {
	t.Parallel()
	const labels, noMatch = "spec.template.metadata.labels: Invalid value", "labels: {a: c}"
	for _, c := range []struct{ kind, text, old, new, want string }{
		{"Deployment", web, "replicas: 2", "replicas: -1", "spec.replicas: Invalid value"},
		{"Deployment", web, "selector: {matchLabels: {a: b}}, ", "", "spec.selector: Required value\n" + labels},
		{"Deployment", web, "selector: {matchLabels: {a: b}}", "selector: {}", "spec.selector: Invalid value"},
		{"Deployment", web, "matchLabels: {a: b}", "matchLabels: {a: '-'}",
			"spec.selector.matchLabels: Invalid value\nspec.selector: Invalid value"},
		{"Deployment", web, "matchLabels: {a: b}", "matchExpressions: [{key: a, operator: In}]",
			"spec.selector.matchExpressions[0].values: Required value\nspec.selector: Invalid value"},
		{"Deployment", web, "matchLabels: {a: b}", "matchExpressions: [{key: a, operator: Like, values: [b]}]",
			"spec.selector.matchExpressions[0].operator: Invalid value\nspec.selector: Invalid value"},
		{"Deployment", web, "labels: {a: b}", noMatch, labels},
		{"Deployment", web, "containers: [{name: c, image: d}]", "containers: []",
			"spec.template.spec.containers: Required value"},
		{"Deployment", web, "name: c, ", "", "spec.template.spec.containers[0].name: Required value"},
		{"Deployment", web, "spec: {containers", "spec: {restartPolicy: Never, containers",
			"spec.template.spec.restartPolicy: Unsupported value"},
		{"Deployment", web, "spec: {containers", "spec: {activeDeadlineSeconds: 5, containers",
			"spec.template.spec.activeDeadlineSeconds: Forbidden"},
		{"Deployment", web, "metadata: {labels: {a: b}}", "metadata: {labels: {a: b, 'c d': e}}",
			"spec.template.labels: Invalid value"},
		{"Deployment", web, "metadata: {labels: {a: b}}",
			"metadata: {labels: {a: b}, annotations: {controller.kubernetes.io/pod-deletion-cost: '1.5'}}",
			"spec.template.annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value"},
		{"Deployment", web, "replicas: 2", "strategy: {type: Blue}", "spec.strategy: Unsupported value"},
		{"Deployment", web, "replicas: 2", "strategy: {type: Recreate, rollingUpdate: {}}",
			"spec.strategy.rollingUpdate: Forbidden"},
		{"Deployment", web, "replicas: 2", "strategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 0%}}",
			"spec.strategy.rollingUpdate.maxUnavailable: Invalid value"},
		{"Deployment", web, "replicas: 2", "strategy: {rollingUpdate: {maxUnavailable: -1}}",
			"spec.strategy.rollingUpdate.maxUnavailable: Invalid value"},
		{"Deployment", web, "replicas: 2", "strategy: {rollingUpdate: {maxUnavailable: 101%}}",
			"spec.strategy.rollingUpdate.maxUnavailable: Invalid value"},
		{"Deployment", web, "replicas: 2", "strategy: {rollingUpdate: {maxUnavailable: some}}",
			"spec.strategy.rollingUpdate.maxUnavailable: Invalid value"},
		{"Deployment", web, "replicas: 2", "strategy: {rollingUpdate: {maxSurge: '1.5'}}",
			"spec.strategy.rollingUpdate.maxSurge: Invalid value"},
		{"Deployment", web, "replicas: 2", "minReadySeconds: -1", "spec.minReadySeconds: Invalid value"},
		{"Deployment", web, "replicas: 2", "revisionHistoryLimit: -1", "spec.revisionHistoryLimit: Invalid value"},
		{"Deployment", web, "replicas: 2", "minReadySeconds: 600", "spec.progressDeadlineSeconds: Invalid value"},
		{"Deployment", web, "replicas: 2", "progressDeadlineSeconds: -1",
			"spec.progressDeadlineSeconds: Invalid value\nspec.progressDeadlineSeconds: Invalid value"},

		{"ReplicaSet", web, "replicas: 2", "replicas: -1, minReadySeconds: -1",
			"spec.replicas: Invalid value\nspec.minReadySeconds: Invalid value"},
		{"ReplicaSet", web, "selector: {matchLabels: {a: b}}, ", "", "spec.selector: Required value\n" + labels},
		{"ReplicaSet", web, "labels: {a: b}", noMatch, labels},

		{"DaemonSet", daemon, "selector: {matchLabels: {a: b}}, ", "", labels},
		{"DaemonSet", daemon, "selector: {matchLabels: {a: b}}", "selector: {}", "spec.selector: Invalid value"},
		{"DaemonSet", daemon, "matchLabels: {a: b}", "matchLabels: {a: '-'}", "spec.selector.matchLabels: Invalid value"},
		{"DaemonSet", daemon, "labels: {a: b}", noMatch, labels},
		{"DaemonSet", daemon, "nodeSelector", "restartPolicy: OnFailure, activeDeadlineSeconds: 5, nodeSelector",
			"spec.template.spec.restartPolicy: Unsupported value\nspec.template.spec.activeDeadlineSeconds: Forbidden"},
		{"DaemonSet", daemon, "spec: {selector", "spec: {minReadySeconds: -1, revisionHistoryLimit: -1, selector",
			"spec.minReadySeconds: Invalid value\nspec.revisionHistoryLimit: Invalid value"},
		{"DaemonSet", daemon, "spec: {selector", "spec: {updateStrategy: {type: Recreate}, selector",
			"spec.updateStrategy: Unsupported value"},
		{"DaemonSet", daemon, "spec: {selector", "spec: {updateStrategy: {rollingUpdate: {maxSurge: 1}}, selector",
			"spec.updateStrategy.rollingUpdate.maxSurge: Invalid value"},
		{"DaemonSet", daemon, "spec: {selector", "spec: {updateStrategy: {rollingUpdate: {maxUnavailable: 0}}, selector",
			"spec.updateStrategy.rollingUpdate.maxUnavailable: Required value"},
		{"DaemonSet", daemon, "spec: {selector",
			"spec: {updateStrategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 101%}}, selector",
			"spec.updateStrategy.rollingUpdate.maxSurge: Invalid value"},

		{"StatefulSet", stateful, "replicas: 2", "replicas: -1", "spec.replicas: Invalid value"},
		{"StatefulSet", stateful, "replicas: 2", "minReadySeconds: -1", "spec.minReadySeconds: Invalid value"},
		{"StatefulSet", stateful, "replicas: 2", "ordinals: {start: -1}", "spec.ordinals.start: Invalid value"},
		{"StatefulSet", stateful, "replicas: 2", "podManagementPolicy: Random", "spec.podManagementPolicy: Invalid value"},
		{"StatefulSet", stateful, "replicas: 2", "updateStrategy: {type: Recreate}", "spec.updateStrategy: Invalid value"},
		{"StatefulSet", stateful, "replicas: 2", "updateStrategy: {type: OnDelete, rollingUpdate: {partition: 1}}",
			"spec.updateStrategy.rollingUpdate: Invalid value"},
		{"StatefulSet", stateful, "replicas: 2", "updateStrategy: {rollingUpdate: {partition: -1}}",
			"spec.updateStrategy.rollingUpdate.partition: Invalid value"},
		{"StatefulSet", stateful, "replicas: 2", "updateStrategy: {rollingUpdate: {maxUnavailable: 0}}",
			"spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value"},
		{"StatefulSet", stateful, "replicas: 2", "updateStrategy: {rollingUpdate: {maxUnavailable: 200%}}",
			"spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value"},
		{"StatefulSet", stateful, "replicas: 2",
			"persistentVolumeClaimRetentionPolicy: {whenDeleted: Burn, whenScaled: Keep}",
			"spec.persistentVolumeClaimRetentionPolicy.whenDeleted: Unsupported value\n" +
				"spec.persistentVolumeClaimRetentionPolicy.whenScaled: Unsupported value"},
		{"StatefulSet", stateful, "selector: {matchLabels: {a: b}}, ", "", "spec.selector: Required value\n" + labels},
		{"StatefulSet", stateful, "selector: {matchLabels: {a: b}}", "selector: {}", "spec.selector: Invalid value"},
		{"StatefulSet", stateful, "labels: {a: b}", noMatch, labels},
		{"StatefulSet", stateful, "serviceName: s", "serviceName: S_", "spec.serviceName: Invalid value"},
		{"StatefulSet", stateful, "name: data, mountPath", "name: other, mountPath",
			"spec.template.spec.containers[0].volumeMounts[0].name: Not found"},
		{"StatefulSet", stateful, "spec: {containers", "spec: {restartPolicy: Never, activeDeadlineSeconds: 5, containers",
			"spec.template.spec.restartPolicy: Unsupported value\nspec.template.spec.activeDeadlineSeconds: Forbidden"},
		{"StatefulSet", stateful, "accessModes: [ReadWriteOnce]", "accessModes: []",
			"spec.volumeClaimTemplates[0].spec.accessModes: Required value"},
		{"StatefulSet", stateful, "accessModes: [ReadWriteOnce]", "accessModes: [Write]",
			"spec.volumeClaimTemplates[0].spec.accessModes: Unsupported value"},
		{"StatefulSet", stateful, "storage: 1Gi", "cpu: 1",
			"spec.volumeClaimTemplates[0].spec.resources[storage]: Required value"},
		{"StatefulSet", stateful, "storage: 1Gi", "storage: 0",
			"spec.volumeClaimTemplates[0].spec.resources[storage]: Invalid value"},

		{"ReplicationController", oldWeb, "replicas: 2", "replicas: -1, minReadySeconds: -1",
			"spec.minReadySeconds: Invalid value\nspec.replicas: Invalid value"},
		{"ReplicationController", oldWeb, "replicas: 2", "selector: {a: c}", labels},
		{"ReplicationController", oldWeb, "labels: {a: b}", "labels: {}", "spec.selector: Required value"},
		{"ReplicationController", oldWeb, "spec: {containers",
			"spec: {restartPolicy: Never, activeDeadlineSeconds: 5, containers",
			"spec.template.spec.restartPolicy: Unsupported value\nspec.template.spec.activeDeadlineSeconds: Forbidden"},
		{"ReplicationController", `{spec: {selector: {a: b}}}`, "", "", "spec.template: Required value"},

		{"ControllerRevision", revision, "data: {a: b}, ", "", "data: Required value"},
		{"ControllerRevision", revision, "data: {a: b}", "data: null", "data: Required value"},
		{"ControllerRevision", revision, "data: {a: b}", "data: [a]", "data: Invalid value"},
		{"ControllerRevision", revision, "revision: 1", "revision: -1", "revision: Invalid value"},
	} {
		t.Run(c.kind+" "+c.new, func(t *testing.T) {
			t.Parallel()
			r := kindtest.Of(t, workload.Resources(), c.kind)
			obj := kindtest.Create(t, r, kindtest.With(t, c.text, c.old, c.new))
			kindtest.WantErrors(t, kindtest.Validate(r, obj, nil, ""), c.want)
		})
	}
}

func TestBadUpdates(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ kind, text, old, new, want string }{
		{"Deployment", web, "matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}",
			"matchLabels: {a: c}}, template: {metadata: {labels: {a: c}}", "spec.selector: Invalid value"},
		{"Deployment", web, "replicas: 2", "replicas: 5, paused: true", ""},
		{"ReplicaSet", web, "matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}",
			"matchLabels: {a: c}}, template: {metadata: {labels: {a: c}}", "spec.selector: Invalid value"},
		{"DaemonSet", daemon, "matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}",
			"matchLabels: {a: c}}, template: {metadata: {labels: {a: c}}", "spec.selector: Invalid value"},
		{"StatefulSet", stateful, "matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}",
			"matchLabels: {a: c}}, template: {metadata: {labels: {a: c}}", "spec: Forbidden"},
		{"StatefulSet", stateful, "serviceName: s", "serviceName: z", "spec: Forbidden"},
		{"StatefulSet", stateful, "storage: 1Gi", "storage: 2Gi", "spec: Forbidden"},
		{"StatefulSet", stateful, "serviceName: s", "serviceName: s, podManagementPolicy: Parallel", "spec: Forbidden"},
		{"StatefulSet", stateful, "replicas: 2",
			"replicas: 5, minReadySeconds: 3, revisionHistoryLimit: 2, ordinals: {start: 3}, " +
				"updateStrategy: {type: OnDelete}, persistentVolumeClaimRetentionPolicy: {whenScaled: Delete}", ""},
		{"StatefulSet", stateful, "image: d", "image: e", ""},
		{"ReplicationController", oldWeb, "labels: {a: b}", "labels: {a: c}", ""},
		{"ControllerRevision", revision, "data: {a: b}", "data: {a: c}", "data: Invalid value"},
		{"ControllerRevision", revision, "revision: 1", "revision: 2", ""},
	} {
		t.Run(c.kind+" "+c.new, func(t *testing.T) {
			t.Parallel()
			r := kindtest.Of(t, workload.Resources(), c.kind)
			cur := kindtest.Create(t, r, c.text)
			next := kindtest.Update(t, r, cur, kindtest.With(t, c.text, c.old, c.new), "")
			kindtest.WantErrors(t, kindtest.Validate(r, next, cur, ""), splitLines(c.want)...)
		})
	}
}

func splitLines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

func TestBadStatuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ kind, text, status, want string }{
		{"Deployment", web, "{replicas: 1, updatedReplicas: 2, readyReplicas: 2, availableReplicas: 3, collisionCount: 2}",
			"status.updatedReplicas: Invalid value\nstatus.readyReplicas: Invalid value\n" +
				"status.availableReplicas: Invalid value\nstatus.availableReplicas: Invalid value"},
		{"Deployment", web, "{replicas: -1, unavailableReplicas: -1, observedGeneration: -1, collisionCount: 2}",
			"status.observedGeneration: Invalid value\nstatus.replicas: Invalid value\n" +
				"status.unavailableReplicas: Invalid value\n" +
				"status.updatedReplicas: Invalid value\nstatus.readyReplicas: Invalid value\n" +
				"status.availableReplicas: Invalid value"},
		{"Deployment", web, "{collisionCount: 1}", "status.collisionCount: Invalid value"},
		{"ReplicaSet", web, "{replicas: 1, fullyLabeledReplicas: 2, terminatingReplicas: -1}",
			"status.terminatingReplicas: Invalid value\nstatus.fullyLabeledReplicas: Invalid value"},
		{"DaemonSet", daemon,
			"{currentNumberScheduled: -1, numberMisscheduled: -1, desiredNumberScheduled: -1, numberReady: -1}",
			"status.currentNumberScheduled: Invalid value\nstatus.numberMisscheduled: Invalid value\n" +
				"status.desiredNumberScheduled: Invalid value\nstatus.numberReady: Invalid value\n" +
				"status.collisionCount: Invalid value"},
		{"StatefulSet", stateful, "{replicas: 1, currentReplicas: 2, updatedReplicas: 2, collisionCount: 2}",
			"status.currentReplicas: Invalid value\nstatus.updatedReplicas: Invalid value"},
		{"StatefulSet", stateful, "{replicas: 2, readyReplicas: 1, availableReplicas: 2, collisionCount: 3}",
			"status.availableReplicas: Invalid value"},
		{"ReplicationController", oldWeb, "{replicas: 1, readyReplicas: 2}", "status.readyReplicas: Invalid value"},
	} {
		t.Run(c.kind+" "+c.status, func(t *testing.T) {
			t.Parallel()
			r := kindtest.Of(t, workload.Resources(), c.kind)
			cur := kindtest.Create(t, r, c.text)
			collided(cur)
			next := kindtest.Update(t, r, cur, strings.TrimSuffix(c.text, "}")+", status: "+c.status+"}", "status")
			kindtest.WantErrors(t, kindtest.Validate(r, next, cur, "status"), c.want)
		})
	}
}

// collided sets the stored collisionCount to 2.
func collided(obj kind.Object) {
	switch o := obj.(type) {
	case *appsv1.Deployment:
		o.Status.CollisionCount = new(int32(2))
	case *appsv1.DaemonSet:
		o.Status.CollisionCount = new(int32(2))
	case *appsv1.StatefulSet:
		o.Status.CollisionCount = new(int32(2))
	}
}

func TestScale(t *testing.T) {
	t.Parallel()
	scaling := 0
	for _, r := range workload.Resources() {
		sub := r.Subresource("scale")
		if sub == nil {
			continue
		}
		scaling++
		text := map[string]string{"ReplicationController": oldWeb, "StatefulSet": stateful}[r.Kind]
		if text == "" {
			text = web
		}
		obj := kindtest.Create(t, r, text)
		obj.SetUID("u")
		obj.SetResourceVersion("7")
		obj.SetNamespace("n")
		scale := sub.Scale.Of(obj)
		if scale.Spec.Replicas != 2 || scale.Status.Selector != "a=b" || scale.Name != "x" || scale.Namespace != "n" ||
			scale.UID != "u" || scale.ResourceVersion != "7" {
			t.Errorf("%s: got %+v", r.Kind, scale)
		}
		sub.Scale.Set(obj, &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 5}})
		if got := sub.Scale.Of(obj).Spec.Replicas; got != 5 {
			t.Errorf("%s: scaled to 5, it has %d", r.Kind, got)
		}
		if !r.Serves("scale") {
			t.Errorf("%s: discovery does not contain scale", r.Kind)
		}
	}
	if scaling != 4 {
		t.Errorf("%d kinds scale, want 4", scaling)
	}
}

func TestGeneration(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind, text, old, new, sub string
		want                      int64
	}{
		{"Deployment", web, "replicas: 2", "replicas: 3", "", 2},
		{"Deployment", web, "replicas: 2", "replicas: 2", "", 1},
		{"Deployment", web, "labels: {own: label}", "annotations: {why: so}", "", 2},
		{"Deployment", web, "replicas: 2", "replicas: 3", "status", 1},
		{"DaemonSet", daemon, "image: d", "image: e", "", 2},
		{"StatefulSet", stateful, "replicas: 2", "replicas: 3", "", 2},
		{"StatefulSet", stateful, "replicas: 2", "replicas: 2", "", 1},
		{"ReplicaSet", web, "replicas: 2", "replicas: 3", "", 2},
		{"ReplicationController", oldWeb, "replicas: 2", "replicas: 3", "", 2},
	} {
		r := kindtest.Of(t, workload.Resources(), c.kind)
		cur := kindtest.Create(t, r, c.text)
		next := kindtest.Update(t, r, cur, kindtest.With(t, c.text, c.old, c.new), c.sub)
		if got := next.GetGeneration(); cur.GetGeneration() != 1 || got != c.want {
			t.Errorf("%s %s: generation %d, want %d", c.kind, c.new, got, c.want)
		}
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	d := kindtest.Create(t, kindtest.Of(t, workload.Resources(), "Deployment"), web).(*appsv1.Deployment)
	if r := d.Spec.Strategy.RollingUpdate; d.Spec.Strategy.Type != "RollingUpdate" || r.MaxSurge.String() != "25%" ||
		r.MaxUnavailable.String() != "25%" ||
		*d.Spec.RevisionHistoryLimit != 10 || *d.Spec.ProgressDeadlineSeconds != 600 ||
		d.Spec.Template.Spec.RestartPolicy != "Always" {
		t.Errorf("got %+v", d.Spec)
	}
	ds := kindtest.Create(t, kindtest.Of(t, workload.Resources(), "DaemonSet"), daemon).(*appsv1.DaemonSet)
	if r := ds.Spec.UpdateStrategy.RollingUpdate; r.MaxSurge.String() != "0" || r.MaxUnavailable.String() != "1" ||
		*ds.Spec.RevisionHistoryLimit != 10 ||
		ds.Annotations[appsv1.DeprecatedTemplateGeneration] != "1" {
		t.Errorf("got %+v", ds)
	}
	s := kindtest.Create(t, kindtest.Of(t, workload.Resources(), "StatefulSet"), stateful).(*appsv1.StatefulSet)
	claim, keep := s.Spec.VolumeClaimTemplates[0], s.Spec.PersistentVolumeClaimRetentionPolicy
	if r := s.Spec.UpdateStrategy.RollingUpdate; s.Spec.PodManagementPolicy != "OrderedReady" || *r.Partition != 0 ||
		r.MaxUnavailable.String() != "1" ||
		keep.WhenDeleted != "Retain" || keep.WhenScaled != "Retain" {
		t.Errorf("got %+v", s.Spec)
	}
	if claim.Kind != "PersistentVolumeClaim" || claim.APIVersion != "v1" || claim.Status.Phase != "Pending" ||
		*claim.Spec.VolumeMode != "Filesystem" {
		t.Errorf("got %+v", claim)
	}
	rc := kindtest.Create(t, kindtest.Of(t, workload.Resources(), "ReplicationController"),
		oldWeb).(*corev1.ReplicationController)
	if rc.Spec.Selector["a"] != "b" || rc.Labels["a"] != "b" {
		t.Errorf("got %+v", rc)
	}
}

// Each change of the template is counted, and clients cannot change the count.
func TestDaemonSetTemplateGeneration(t *testing.T) {
	t.Parallel()
	r := kindtest.Of(t, workload.Resources(), "DaemonSet")
	cur := kindtest.Create(t, r, kindtest.With(t, daemon, "name: x",
		"name: x, annotations: {deprecated.daemonset.template.generation: '9'}"))
	for _, c := range []struct{ old, new, want string }{
		{"image: d", "image: e", "2"}, {"spec: {selector", "spec: {minReadySeconds: 1, selector", "1"},
	} {
		next := kindtest.Update(t, r, cur, kindtest.With(t, daemon, c.old, c.new), "")
		if got := next.GetAnnotations()[appsv1.DeprecatedTemplateGeneration]; got != c.want {
			t.Errorf("%s: template %s, want %s", c.new, got, c.want)
		}
	}
}

func TestRows(t *testing.T) {
	t.Parallel()
	meta := "metadata: {name: x, creationTimestamp: '2026-01-01T11:00:00Z'"
	for _, c := range []struct{ kind, text, want string }{
		{"Deployment", kindtest.With(t, web, "metadata: {name: x", meta), "x|1/2|2|1|60m|c|d|a=b"},
		{"ReplicaSet", kindtest.With(t, web, "metadata: {name: x", meta), "x|2|2|1|60m|c|d|a=b"},
		{"DaemonSet", kindtest.With(t, daemon, "metadata: {name: x", meta), "x|3|2|1|0|1|k=v|60m|c|d|a=b"},
		{"DaemonSet", kindtest.With(t, daemon, "nodeSelector: {k: v}, ", ""), "x|3|2|1|0|1|<none>|<unknown>|c|d|a=b"},
		{"StatefulSet", kindtest.With(t, stateful, "metadata: {name: x", meta), "x|1/2|60m|c|d"},
		{"ReplicationController", kindtest.With(t, oldWeb, "metadata: {name: x", meta), "x|2|2|1|60m|c|d|a=b"},
		{"ReplicationController", "{}", "|1|0|0|<unknown>|||<none>"},
		{"ControllerRevision", revision, "x|<none>|1|<unknown>"},
		{"ControllerRevision", kindtest.With(t, revision, "name: x",
			"name: x, ownerReferences: [{apiVersion: apps/v1, kind: StatefulSet, name: s, controller: true, uid: u}]"),
			"x|statefulset.apps/s|1|<unknown>"},
	} {
		r := kindtest.Of(t, workload.Resources(), c.kind)
		obj := kindtest.Create(t, r, c.text)
		switch o := obj.(type) {
		case *appsv1.Deployment:
			o.Status = appsv1.DeploymentStatus{ReadyReplicas: 1, UpdatedReplicas: 2, AvailableReplicas: 1}
		case *appsv1.ReplicaSet:
			o.Status = appsv1.ReplicaSetStatus{Replicas: 2, ReadyReplicas: 1}
		case *appsv1.DaemonSet:
			o.Status = appsv1.DaemonSetStatus{DesiredNumberScheduled: 3, CurrentNumberScheduled: 2, NumberReady: 1,
				NumberAvailable: 1}
		case *appsv1.StatefulSet:
			o.Status = appsv1.StatefulSetStatus{ReadyReplicas: 1}
		case *corev1.ReplicationController:
			if o.Name != "" {
				o.Status = corev1.ReplicationControllerStatus{Replicas: 2, ReadyReplicas: 1}
			}
		}
		if got := kindtest.Row(t, r.Columns, obj); got != c.want {
			t.Errorf("%s: got %s, want %s", c.kind, got, c.want)
		}
	}
}

func TestFieldSelectors(t *testing.T) {
	t.Parallel()
	rc := kindtest.Of(t, workload.Resources(), "ReplicationController")
	if got := rc.FieldsOf(&corev1.ReplicationController{Status: corev1.ReplicationControllerStatus{Replicas: 3}})["status.replicas"]; got != "3" {
		t.Errorf("got %q", got)
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ kind, text, want string }{
		{"Deployment", web, ""},
		{"Deployment", kindtest.With(t, web, "name: x", "name: x.y"),
			"metadata.name: this is used in Pod names and hostnames"},
		{"Deployment", kindtest.With(t, web, "image: d", "image: d, env: [{name: a, value: b}, {name: a, value: c}]"),
			"spec.template.spec.containers[0].env[1]: hides previous definition"},
		{"StatefulSet", kindtest.With(t, stateful, "replicas: 2", "revisionHistoryLimit: -1"),
			"spec.revisionHistoryLimit: a negative value"},
		{"StatefulSet", kindtest.With(t, stateful, "1Gi", "500m"),
			"spec.volumeClaimTemplates[0].spec.resources.requests[storage]: fractional byte value"},
		{"DaemonSet", kindtest.With(t, daemon, "{k: v}", "{beta.kubernetes.io/os: linux}"),
			"spec.template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14"},
		{"ReplicationController", kindtest.With(t, oldWeb, "name: x", "name: x.y"), "metadata.name: this is used"},
	} {
		r := kindtest.Of(t, workload.Resources(), c.kind)
		obj := kindtest.Create(t, r, c.text)
		got := strings.Join(r.Warnings(obj, nil), "\n")
		if !strings.HasPrefix(got, c.want) || c.want == "" && got != "" || strings.Contains(got, "\n") {
			t.Errorf("%s: warned %q, want %q", c.kind, got, c.want)
		}
		if again := r.Warnings(obj, obj); len(again) > 0 {
			t.Errorf("%s: an update of nothing warns %q", c.kind, again)
		}
	}
}
