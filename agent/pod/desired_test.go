package pod

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/agent/podapi/status"
)

// sized returns a pod whose container requests this amount of CPU.
func sized(cpu string) *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c",
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}}}}}
}

func (d *desired) cpu() string {
	q := d.pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU]
	return q.String()
}

// A pod keeps its resources until the node has enough for its request.
func TestAsk(t *testing.T) {
	t.Parallel()
	d := newDesired(sized("1"), sized("1"))
	full := &status.Resize{Reason: corev1.PodReasonDeferred}
	fits := func(*corev1.Pod, *corev1.Pod) *status.Resize { return full }
	if asks, granted := d.setPod(sized("1"), fits); asks || granted || d.waitsForResources() {
		t.Error("an unchanged pod requests a resize")
	}
	if asks, granted := d.setPod(sized("2"), fits); !asks || granted || d.cpu() != "1" || d.deferred != full ||
		!d.waitsForResources() {
		t.Errorf("without free CPU: requests %v, granted %v, has %s", asks, granted, d.cpu())
	}
	full = nil
	if asks, granted := d.setPod(d.requested, fits); !asks || !granted || d.cpu() != "2" || d.deferred != nil ||
		d.waitsForResources() {
		t.Errorf("with free CPU: requests %v, granted %v, has %s", asks, granted, d.cpu())
	}
}

func TestGraceLeft(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		own     int64
		asked   int64 // grace period of the deletion; negative: not deleted
		evicted time.Duration
		gone    bool
		ending  time.Duration
		want    time.Duration
	}{
		"period of the pod":        {30, -1, -1, false, 0, 30 * time.Second},
		"partly over":              {30, -1, -1, false, 20 * time.Second, 10 * time.Second},
		"deleted":                  {30, 5, -1, false, 2 * time.Second, 3 * time.Second},
		"evicted":                  {30, -1, 4 * time.Second, false, 0, 4 * time.Second},
		"evicted, shorter period":  {2, -1, 4 * time.Second, false, 0, 2 * time.Second},
		"over":                     {30, -1, -1, false, time.Minute, 0},
		"object removed":           {30, -1, -1, true, 0, minGraceGone},
		"removed during deletion":  {30, 5, -1, true, 0, 5 * time.Second},
		"removed after the period": {30, 5, -1, true, time.Minute, minGraceGone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := &corev1.Pod{Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &c.own}}
			if c.asked >= 0 {
				pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = new(metav1.Now()), &c.asked
			}
			d := newDesired(pod, pod)
			d.gone = c.gone
			if c.evicted >= 0 {
				d.fail(&status.Failure{Reason: "Evicted"}, &c.evicted)
			}
			if got := d.graceLeft(c.ending); got != c.want {
				t.Errorf("the remaining grace period is %v, want %v", got, c.want)
			}
		})
	}
}

func TestEnds(t *testing.T) {
	t.Parallel()
	d := newDesired(sized("1"), sized("1"))
	if d.ends() {
		t.Error("a desired pod terminates")
	}
	d.fail(&status.Failure{}, nil)
	gone := newDesired(sized("1"), sized("1"))
	gone.gone = true
	finished := newDesired(sized("1"), sized("1"))
	finished.pod.Status.Phase = corev1.PodSucceeded
	for name, d := range map[string]*desired{"failed": d, "gone": gone, "finished": finished} {
		if !d.ends() {
			t.Errorf("%s: the pod does not terminate", name)
		}
	}
}
