package why_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/words"
	"monopod/apiserver/why"
)

// Without an object, why explains the objects with problems, the worst first. The problem of a pod is that of its
// owner.
func TestSuspects(t *testing.T) {
	t.Parallel()
	const owned = "metadata: {name: %s, ownerReferences: [{controller: true, uid: %s, kind: X, name: x}]}\n"
	crashes := strings.TrimPrefix(crashing("exitCode: 1"), "kind: Pod\n")
	for name, c := range map[string]struct {
		objects []string
		want    string // kinds and names
	}{
		"nothing": {[]string{node, "kind: Pod\n" + onNode + "\n" + running, "kind: Pod\n" + onNode +
			"\nstatus: {phase: Succeeded}", "kind: Deployment\nstatus: {replicas: 1, readyReplicas: 1, updatedReplicas: 1}",
			"kind: ConfigMap", "kind: Namespace", "kind: DaemonSet", "kind: CronJob\nspec: {schedule: '* * * * *'}",
			"kind: PersistentVolumeClaim\nstatus: {phase: Bound}"}, ""},
		"worst first": {[]string{"kind: CronJob\nspec: {schedule: '0 0 30 2 *'}",
			"kind: StatefulSet\nspec: {replicas: 2}\nstatus: {replicas: 2, readyReplicas: 1}", "kind: Pod\n" + onNode +
				"\nstatus: {phase: Pending}", "kind: Node\nstatus: {conditions: [{type: Ready, status: Unknown}]}"},
			"Node p, Pod p, StatefulSet p, CronJob p"},
		"a pod of a set": {[]string{"kind: Deployment\nspec: {replicas: 1}", "kind: ReplicaSet\n" + fmt.Sprintf(owned,
			"r", "Deployment-p"), "kind: Pod\n" + fmt.Sprintf(owned, "x", "ReplicaSet-r") + crashes}, "Deployment p"},
		"a pod of a Job": {[]string{"kind: Job", "kind: Pod\n" + fmt.Sprintf(owned, "x", "Job-p") + crashes,
			"kind: Pod\n" + fmt.Sprintf(owned, "y", "Job-p") + "status: {phase: Failed}"}, "Job p"},
		"of a custom kind": {[]string{"kind: Pod\n" + fmt.Sprintf(owned, "x", "Backup-b") + crashes}, "Pod x"},
		"the newest Job only": {[]string{"kind: CronJob\nspec: {schedule: '* * * * *'}", "kind: Job\n" + fmt.Sprintf(owned,
			"a", "CronJob-p") + "status: {conditions: [{type: Failed, status: 'True'}]}", "kind: Job\n" +
			strings.Replace(fmt.Sprintf(owned, "b", "CronJob-p"), "name: b",
				"name: b, creationTimestamp: '2026-01-01T00:09:00Z'", 1)}, ""},
		"the newest Job": {[]string{"kind: Job\n" + fmt.Sprintf(owned, "a", "CronJob-p") +
			"status: {conditions: [{type: Failed, status: 'True'}]}"}, "Job a"},
		"a claim": {[]string{"kind: PersistentVolumeClaim\nstatus: {phase: Pending}"}, "PersistentVolumeClaim p"},
		"a claim of a pod": {[]string{"kind: PersistentVolumeClaim\nmetadata: {name: data}\nstatus: {phase: Pending}",
			"kind: Pod\nspec: {volumes: [{name: v, persistentVolumeClaim: {claimName: data}}], containers: [{name: c}]}\n" +
				"status: {phase: Pending}"}, "Pod p"},
		"no pods": {[]string{"kind: Service\nspec: {selector: {a: b}}"}, "Service p"},
		"no pods now": {[]string{"kind: Service\nspec: {selector: {a: b}}",
			"kind: Deployment\nspec: {replicas: 0, template: {metadata: {labels: {a: b}}}}"}, ""},
		"deleted just now": {[]string{"kind: Namespace\nmetadata: {deletionTimestamp: '2026-01-01T00:09:50Z'}"}, ""},
		"deletion hangs": {[]string{"kind: Namespace\nmetadata: {deletionTimestamp: '2026-01-01T00:09:00Z'}"},
			"Namespace p"},
		"a condition": {[]string{"kind: CustomResourceDefinition\n" +
			"status: {conditions: [{type: Established, status: 'False'}]}"}, "CustomResourceDefinition p"},
		"no metrics": {[]string{"kind: HorizontalPodAutoscaler\n" +
			"status: {conditions: [{type: ScalingActive, status: 'False'}]}",
			"kind: HorizontalPodAutoscaler\nmetadata: {name: off}\n" +
				"status: {conditions: [{type: ScalingActive, status: 'False', reason: ScalingDisabled}]}"},
			"HorizontalPodAutoscaler p"},
	} {
		var objects []client.Object
		for _, text := range c.objects {
			obj := decode(t, text)
			if obj.GetName() == "" {
				obj.SetName("p")
			}
			obj.SetUID(types.UID(words.Kind(obj) + "-" + obj.GetName()))
			objects = append(objects, obj)
		}
		var got []string
		for _, o := range why.Suspects(objects, now) {
			got = append(got, words.Name(o))
		}
		if s := strings.Join(got, ", "); s != c.want {
			t.Errorf("%s: got %q, want %q", name, s, c.want)
		}
		slices.Reverse(objects) // the order does not matter
		if again := why.Suspects(objects, now); len(again) != len(got) || len(got) > 0 && words.Name(again[0]) != got[0] {
			t.Errorf("%s: in reverse: %v", name, again)
		}
	}
}
