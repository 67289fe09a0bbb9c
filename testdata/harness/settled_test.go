package harness

import (
	"strings"
	"testing"
)

func TestWorkInMetrics(t *testing.T) {
	t.Parallel()
	const rest = `# HELP workqueue_depth Keys waiting in the queue.
# TYPE workqueue_depth gauge
workqueue_depth{name="replicaset"} 0
workqueue_unfinished_work_seconds{name="replicaset"} 0
workqueue_work_duration_seconds_bucket{name="replicaset",le="1"} 99
workqueue_work_duration_seconds_count{name="replicaset"} 7
kubelet_pod_worker_duration_seconds_count{operation_type="sync"} 3
`
	if w := workIn(rest); w.err != nil || w.left != "" || w.done != 10 {
		t.Errorf("at rest: %+v", w)
	}
	for _, name := range []string{"workqueue_depth", "workqueue_unfinished_work_seconds"} {
		line := name + `{name="replicaset"} `
		if w := workIn(strings.Replace(rest, line+"0", line+"1.5e-05", 1)); w.left != line+"1.5e-05\n" {
			t.Errorf("%s: %+v", name, w)
		}
	}
	if w := workIn(rest + "monopod_panics_total{part=\"pod\"} 1\n"); w.left == "" {
		t.Error("metrics with a panic count as at rest")
	}
	if workIn("go_goroutines 5\n").err == nil {
		t.Error("metrics without queues count as at rest")
	}
}
