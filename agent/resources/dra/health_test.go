package dra

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	report "k8s.io/kubelet/pkg/apis/dra-health/v1"

	sample "monopod/testdata/dradriver/driver"
)

// shown returns the health of the devices of a container.
func shown(m *Manager, p *corev1.Pod) string {
	var out []string
	for _, st := range m.Health(p)["c"] {
		for _, r := range st.Resources {
			text := fmt.Sprintf("%s %s=%s", st.Name, strings.TrimPrefix(string(r.ResourceID), gpus+"/device=uid-"), r.Health)
			if r.Message != nil {
				text += " " + *r.Message
			}
			out = append(out, text)
		}
	}
	return strings.Join(out, ", ")
}

func of(device string, is report.HealthStatus, message string, seconds int64) *report.DeviceHealth {
	return &report.DeviceHealth{Device: &report.DeviceIdentifier{PoolName: "pool", DeviceName: device}, Health: is,
		Message: message, HealthCheckTimeoutSeconds: seconds}
}

func TestHealthOfDevices(t *testing.T) {
	in(t, func(w *world) {
		m, _ := w.start()
		reports := make(chan []*report.DeviceHealth)
		_, pull := w.plug(m, sample.Config{Health: reports})
		p := pod("p", "c", "")
		w.give("c", p)
		if got := m.Health(p); got != nil {
			t.Errorf("health before Prepare: %v", got)
		}
		w.must(m.Prepare(w.Context(), p))
		expect := func(when, want string, woken int) {
			t.Helper()
			synctest.Wait()
			if got := shown(m, p); got != want {
				t.Errorf("%s: %q, want %q", when, got, want)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			if len(w.changed) != woken {
				t.Errorf("%s: notified of %q, want %d", when, w.changed, woken)
			}
		}
		expect("no report", "claim:gpu c-g1=Unknown, claim:gpu c-g2=Unknown", 0)
		reports <- []*report.DeviceHealth{of("g1", report.HealthStatus_HEALTHY, "", 0),
			of("other", report.HealthStatus_HEALTHY, "", 0)}
		expect("first report", "claim:gpu c-g1=Healthy, claim:gpu c-g2=Unknown", 1)
		reports <- []*report.DeviceHealth{of("g1", report.HealthStatus_HEALTHY, "", 0),
			of("other", report.HealthStatus_UNHEALTHY, "", 0)}
		expect("no change", "claim:gpu c-g1=Healthy, claim:gpu c-g2=Unknown", 1)
		reports <- []*report.DeviceHealth{of("g2", report.HealthStatus_UNHEALTHY, strings.Repeat("x", 2000), 3600)}
		synctest.Wait()
		if got := shown(m, p); !strings.HasSuffix(got, "c-g2=Unhealthy "+
			strings.Repeat("x", corev1.ResourceHealthMessageMaxLength-3)+"...") {
			t.Errorf("long message: %q", got)
		}
		reports <- []*report.DeviceHealth{of("g2", report.HealthStatus_UNHEALTHY, "hot", 3600)}
		expect("report with a timeout", "claim:gpu c-g1=Healthy, claim:gpu c-g2=Unhealthy hot", 3)
		time.Sleep(time.Minute)
		expect("after the default timeout", "claim:gpu c-g1=Unknown, claim:gpu c-g2=Unhealthy hot", 3)
		pull()
		expect("without the driver", "claim:gpu c-g1=Unknown, claim:gpu c-g2=Unknown", 4)
	})
}

// The manager survives a driver whose stream of health reports ends at once. The health stays unknown.
func TestHealthStreamEnds(t *testing.T) {
	in(t, func(w *world) {
		m, _ := w.start()
		reports := make(chan []*report.DeviceHealth, 1)
		close(reports)
		w.plug(m, sample.Config{Health: reports})
		time.Sleep(time.Hour)
		synctest.Wait()
		p := pod("p", "c", "a")
		w.give("c", p)
		w.must(m.Prepare(w.Context(), p))
		if got := shown(m, p); got != "claim:gpu/a c-g1=Unknown" {
			t.Errorf("health: %q", got)
		}
	})
}

// The status of a pod names the claim with the devices for its extended resources.
func TestExtendedResources(t *testing.T) {
	in(t, func(w *world) {
		m, _ := w.start()
		d, _ := w.plug(m, sample.Config{})
		p := pod("p", "c", "")
		p.Spec.ResourceClaims, p.Spec.Containers[0].Resources.Claims = nil, nil
		p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "c",
			RequestMappings: []corev1.ContainerExtendedResourceRequest{
				{ContainerName: "c", ResourceName: "example.com/gpu", RequestName: "a"},
				{ContainerName: "other", ResourceName: "example.com/gpu", RequestName: "b"}}}
		c := w.give("c", p)
		if err := m.Prepare(w.Context(), p); err == nil {
			t.Error("Prepare succeeded although the pod does not own the claim")
		}
		c.OwnerReferences = owner(p)
		w.must(m.Prepare(w.Context(), p))
		if got := w.cdi(m, p) + " " + shown(m, p); got != "c-g1 example.com/gpu c-g1=Unknown" {
			t.Errorf("devices and health: %q", got)
		}
		if r := m.Resources(p, &p.Spec.Containers[0]); len(r) != 1 || r[0].ClaimName != "c" {
			t.Errorf("resources: %v", r)
		}
		w.must(m.Unprepare(w.Context(), p.UID))
		w.expect(d, "prepare c", "unprepare c")
	})
}

func TestMetrics(t *testing.T) {
	in(t, func(w *world) {
		m, _ := w.start()
		w.plug(m, sample.Config{})
		p := pod("p", "c", "")
		_ = m.Prepare(w.Context(), p) // fails without the claim
		w.give("c", p)
		w.must(m.Prepare(w.Context(), p))
		registry := prometheus.NewPedanticRegistry()
		w.must(registry.Register(m.Metrics()))
		all, err := registry.Gather()
		w.must(err)
		var got []string
		for _, family := range all {
			for _, one := range family.GetMetric() {
				var labels []string
				for _, l := range one.GetLabel() {
					labels = append(labels, l.GetValue())
				}
				got = append(got,
					fmt.Sprint(strings.TrimPrefix(family.GetName(), "dra_"), labels, one.GetGauge().GetValue()+
						float64(one.GetHistogram().GetSampleCount())))
			}
		}
		want := []string{"grpc_operations_duration_seconds[gpu.example.com OK /v1.DRAPlugin/NodePrepareResources] 1",
			"operations_duration_seconds[false PrepareResources] 1", "operations_duration_seconds[true PrepareResources] 1",
			"resource_claims_in_use[<any>] 1", "resource_claims_in_use[gpu.example.com] 1"}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("metrics: %q", got)
		}
	})
}

func owner(p *corev1.Pod) []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(p, corev1.SchemeGroupVersion.WithKind("Pod"))}
}
