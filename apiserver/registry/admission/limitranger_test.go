package admission_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"monopod/apiserver/kit/client"
)

func rangeOf(t *testing.T, limits string) *corev1.LimitRange {
	t.Helper()
	return object(t, new(corev1.LimitRange), `{metadata: {name: l}, spec: {limits: [`+limits+`]}}`)
}

func TestLimitRangerDefaults(t *testing.T) {
	t.Parallel()
	r := open(t, nil)
	mustCreate(t, r, rangeOf(t, `{type: Container, default: {cpu: 1, memory: 1Gi}, defaultRequest: {cpu: 100m}}`))
	pod := object(t, new(corev1.Pod), `{metadata: {name: p}, spec: {
		initContainers: [{name: i, image: "a:1", resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1, memory: 1Gi}}}],
		containers: [{name: a, image: "a:1"}, {name: b, image: "a:1", resources: {limits: {cpu: 500m}}}]}}`)
	stored, err := r.Create(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	got := stored.(*corev1.Pod)
	const want = "LimitRanger plugin set: cpu, memory request for container a; cpu, " +
		"memory limit for container a; memory request for container b; memory limit for container b"
	if note := got.Annotations["kubernetes.io/limit-ranger"]; note != want {
		t.Errorf("got  %s\nwant %s", note, want)
	}
	text, err := yaml.Marshal(
		[]corev1.ResourceRequirements{got.Spec.Containers[0].Resources, got.Spec.Containers[1].Resources})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(`- limits:
    cpu: "1"
    memory: 1Gi
  requests:
    cpu: 100m
    memory: 1Gi
- limits:
    cpu: 500m
    memory: 1Gi
  requests:
    cpu: 500m
    memory: 1Gi
`, string(text)); diff != "" {
		t.Error(diff)
	}
	if got.Status.QOSClass != corev1.PodQOSBurstable {
		t.Errorf("QoS class %s: it was determined without the defaults", got.Status.QOSClass)
	}
}

func TestLimitRangerRefuses(t *testing.T) {
	t.Parallel()
	claim := func(size string) client.Object {
		return object(t, new(corev1.PersistentVolumeClaim),
			`{metadata: {name: p}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: `+size+`}}}}`)
	}
	const least, most = `{type: Pod, min: {cpu: 200m}}`, `{type: Pod, max: {cpu: 800m}}`
	for name, c := range map[string]struct {
		limits string
		obj    client.Object
		want   string
	}{
		"within": {`{type: Container, max: {cpu: 800m}}`, podOf(t, "p", `{limits: {cpu: 800m}}`), ""},
		"limit too high": {`{type: Container, max: {cpu: 800m}}`, podOf(t, "p", `{limits: {cpu: 1}, requests: {cpu: 1m}}`),
			`pods "p" is forbidden: maximum cpu usage per Container is 800m, but limit is 1`},
		"limit too low": {`{type: Container, min: {cpu: 800m}}`, podOf(t, "p", `{limits: {cpu: 1m}}`),
			`pods "p" is forbidden: minimum cpu usage per Container is 800m, but request is 1m`},
		"no limit": {most, podOf(t, "p", `{requests: {cpu: 100m}}`),
			`maximum cpu usage per Pod is 800m.  No limit is specified`},
		"no request": {least, podOf(t, "p", `{}`), `minimum cpu usage per Pod is 200m.  No request is specified`},
		"request too low": {least, podOf(t, "p", `{requests: {cpu: 100m}, limits: {cpu: 300m}}`),
			`minimum cpu usage per Pod is 200m, but request is 100m`},
		"ratio": {`{type: Container, maxLimitRequestRatio: {cpu: 2}}`,
			podOf(t, "p", `{requests: {cpu: 100m}, limits: {cpu: 300m}}`),
			`cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000`},
		"ratio of nothing": {`{type: Container, maxLimitRequestRatio: {cpu: 2}}`, podOf(t, "p", `{}`),
			`cpu max limit to request ratio per Container is 2, but no request is specified or request is 0`},
		"ratio to nothing": {`{type: Container, maxLimitRequestRatio: {cpu: 2}}`, podOf(t, "p", `{requests: {cpu: 1}}`),
			`cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0`},
		"several": {`{type: Pod, min: {cpu: 1}, max: {memory: 1Gi}}`, podOf(t, "p", `{}`),
			`[minimum cpu usage per Pod is 1.  No request is specified, maximum memory usage per Pod is 1Gi.  No limit is ` +
				`specified]`},
		"a claim": {`{type: PersistentVolumeClaim, min: {storage: 1Gi}, max: {storage: 2Gi}}`, claim("1Gi"), ""},
		"a claim too small": {`{type: PersistentVolumeClaim, min: {storage: 1Gi}}`, claim("1Mi"),
			`persistentvolumeclaims "p" is forbidden: minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi`},
		"a claim too big": {`{type: PersistentVolumeClaim, max: {storage: 2Gi}}`, claim("3Gi"),
			`persistentvolumeclaims "p" is forbidden: maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := open(t, nil)
			mustCreate(t, r, rangeOf(t, c.limits))
			_, err := r.Create(t.Context(), c.obj)
			wantRefusal(t, err, http.StatusForbidden, c.want)
		})
	}
}
