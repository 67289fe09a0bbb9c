package pod

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"monopod/apiserver/registry/kind/kindtest"
)

func TestPrintPods(t *testing.T) {
	t.Parallel()
	const two = "spec: {nodeName: n1, containers: [{name: a}, {name: b}]}\n"
	const withInit = "spec: {initContainers: [{name: i}, {name: j}], containers: [{name: a}]}\n"
	const sidecar = "spec: {initContainers: [{name: s, restartPolicy: Always}], containers: [{name: a}]}\n"
	for name, c := range map[string]struct{ pod, want string }{
		"pending": {two + "status: {phase: Pending}", "0/2|Pending|0"},
		"creating": {two +
			"status: {phase: Pending, containerStatuses: [{name: a, state: {waiting: {reason: ContainerCreating}}}, " +
			"{name: b, state: {waiting: {reason: ContainerCreating}}}]}",
			"0/2|ContainerCreating|0"},
		"running": {two +
			"status: {phase: Running, containerStatuses: [{name: a, ready: true, state: {running: {}}}, {name: b, " +
			"ready: true, state: {running: {}}}]}",
			"2/2|Running|0"},
		"restarted": {two +
			"status: {phase: Running, containerStatuses: [{name: a, ready: true, restartCount: 3, state: {running: {}}, " +
			"lastState: {terminated: {finishedAt: '2026-01-01T11:59:55Z'}}}, {name: b, state: {running: {}}}]}",
			"1/2|Running|3 (5s ago)"},
		"crash loop": {two + "status: {phase: Running, containerStatuses: [{name: a, restartCount: 1, " +
			"state: {waiting: {reason: CrashLoopBackOff}}}, {name: b, ready: true, state: {running: {}}}]}",
			"1/2|CrashLoopBackOff|1"},
		"completed": {two + "status: {phase: Succeeded, containerStatuses: [{name: a, " +
			"state: {terminated: {reason: Completed}}}, {name: b, state: {terminated: {reason: Completed}}}]}",
			"0/2|Completed|0"},
		"one completed": {two + "status: {phase: Running, containerStatuses: [{name: a, " +
			"state: {terminated: {reason: Completed}}}, {name: b, ready: true, state: {running: {}}}]}", "1/2|NotReady|0"},
		"one completed ready": {two + "status: {phase: Running, conditions: [{type: Ready, status: 'True'}], " +
			"containerStatuses: [{name: a, state: {terminated: {reason: Completed}}}, {name: b, ready: true, " +
			"state: {running: {}}}]}", "1/2|Running|0"},
		"error": {two + "status: {phase: Failed, containerStatuses: [{name: a, " +
			"state: {terminated: {reason: Error, exitCode: 1}}}, {name: b, state: {terminated: {exitCode: 2}}}]}",
			"0/2|Error|0"},
		"exit code": {two + "status: {phase: Failed, containerStatuses: [{name: a, " +
			"state: {terminated: {exitCode: 3}}}]}", "0/2|ExitCode:3|0"},
		"signal": {two + "status: {phase: Failed, containerStatuses: [{name: a, " +
			"state: {terminated: {exitCode: 137, signal: 9}}}]}", "0/2|Signal:9|0"},
		"evicted": {two + "status: {phase: Failed, reason: Evicted}", "0/2|Evicted|0"},
		"gated": {two + "status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False', " +
			"reason: SchedulingGated}]}", "0/2|SchedulingGated|0"},
		"terminating": {"metadata: {deletionTimestamp: '2026-01-01T11:59:00Z'}\n" + two + "status: {phase: Running}",
			"0/2|Terminating|0"},
		"done, terminating": {"metadata: {deletionTimestamp: '2026-01-01T11:59:00Z'}\n" + two +
			"status: {phase: Succeeded}", "0/2|Succeeded|0"},
		"node lost": {"metadata: {deletionTimestamp: '2026-01-01T11:59:00Z'}\n" + two +
			"status: {phase: Running, reason: NodeLost}", "0/2|Unknown|0"},
		"first init": {withInit + "status: {phase: Pending, initContainerStatuses: [{name: i, " +
			"state: {running: {}}}, {name: j, state: {waiting: {reason: PodInitializing}}}], containerStatuses: [{name: a, " +
			"state: {waiting: {reason: PodInitializing}}}]}", "0/1|Init:0/2|0"},
		"second init": {withInit + "status: {phase: Pending, initContainerStatuses: [{name: i, restartCount: 2, " +
			"state: {terminated: {exitCode: 0, reason: Completed}}}, {name: j, state: {waiting: {reason: PodInitializing}}}]}",
			"0/1|Init:1/2|2"},
		"init fails": {withInit + "status: {phase: Pending, initContainerStatuses: [{name: i, " +
			"state: {terminated: {exitCode: 1, reason: Error}}}]}", "0/1|Init:Error|0"},
		"init exit code": {withInit + "status: {phase: Pending, initContainerStatuses: [{name: i, " +
			"state: {terminated: {exitCode: 1}}}]}", "0/1|Init:ExitCode:1|0"},
		"init crash loop": {withInit + "status: {phase: Pending, initContainerStatuses: [{name: i, restartCount: 4, " +
			"state: {waiting: {reason: CrashLoopBackOff}}}]}", "0/1|Init:CrashLoopBackOff|4"},
		"init completed": {withInit + "status: {phase: Running, initContainerStatuses: [{name: i, restartCount: 2, " +
			"state: {terminated: {exitCode: 0}}}, {name: j, state: {terminated: {exitCode: 0}}}], " +
			"containerStatuses: [{name: a, ready: true, state: {running: {}}}]}", "1/1|Running|0"},
		"sidecar": {sidecar + "status: {phase: Running, initContainerStatuses: [{name: s, ready: true, " +
			"started: true, restartCount: 1, state: {running: {}}}], containerStatuses: [{name: a, ready: true, " +
			"state: {running: {}}}]}", "2/2|Running|1"},
		"sidecar starting": {sidecar + "status: {phase: Pending, initContainerStatuses: [{name: s, started: false, " +
			"state: {running: {}}}]}", "0/2|Init:0/1|0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var pod corev1.Pod
			if err := yaml.UnmarshalStrict([]byte(c.pod), &pod); err != nil {
				t.Fatal(err)
			}
			got := kindtest.Row(t, podColumns()[1:4], &pod)
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}
