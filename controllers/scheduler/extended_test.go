package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/follow"
	"monopod/controllers/internal/apitest"
)

// wanting sets the request of the first container to an amount of an extended resource.
func wanting(name string, n int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		q := corev1.ResourceList{corev1.ResourceName(name): *resource.NewQuantity(n, resource.DecimalSI)}
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: q, Limits: q}
	}
}

// special formats the pod's extendedResourceClaimStatus and the claim that it names.
func special(api *apitest.API, pod string) string {
	st := apitest.Existing[*corev1.Pod](api, "default", pod).Status.ExtendedResourceClaimStatus
	if st == nil {
		return "none"
	}
	var parts []string
	for _, m := range st.RequestMappings {
		parts = append(parts, fmt.Sprintf("%s:%s=%s", m.ContainerName, m.ResourceName, m.RequestName))
	}
	if _, ok := apitest.Get[*resourcev1.ResourceClaim](api, "default", st.ResourceClaimName); !ok {
		return "gone"
	}
	return strings.Join(append(parts, has(api, st.ResourceClaimName)), " ")
}

func TestExtendedResourcesFromDevices(t *testing.T) {
	t.Parallel()
	const gpu = "example.com/gpu"
	for name, c := range map[string]struct {
		pod        []func(*corev1.Pod)
		where, has string
	}{
		"by name": {pod: []func(*corev1.Pod){wanting(gpu, 2)}, where: "n1",
			has: "c:example.com/gpu=container-0-request-0 container-0-request-0=large container-0-request-0=small for p"},
		"by the class's name": {pod: []func(*corev1.Pod){wanting("deviceclass.resource.kubernetes.io/any", 1)}, where: "n1",
			has: "c:deviceclass.resource.kubernetes.io/any=container-0-request-0 container-0-request-0=small for p"},
		"of the newest class": {pod: []func(*corev1.Pod){wanting("example.com/twice", 1)}, where: "n1",
			has: "c:example.com/twice=container-0-request-0 container-0-request-0=large for p"},
		"with a claim": {pod: []func(*corev1.Pod){claiming("c"), wanting(gpu, 1)}, where: "n1",
			has: "c:example.com/gpu=container-0-request-0 container-0-request-0=large for p"},
		"too many": {pod: []func(*corev1.Pod){wanting(gpu, 4)}, where: "cannot allocate all claims", has: "none"},
		"of no class": {pod: []func(*corev1.Pod){wanting("example.com/fpga", 1)},
			where: "Insufficient example.com/fpga", has: "none"},
		"from a plugin": {pod: []func(*corev1.Pod){wanting("example.com/plugged", 1)}, where: "n1", has: "none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				api := apitest.New(t)
				addNodes(api, "n1")
				apitest.Change(api, apitest.Node("n1"), "status", func(n *corev1.Node) {
					n.Status.Allocatable["example.com/plugged"] = resource.MustParse("1")
				})
				api.Create(deviceClass(t, "any", "extendedResourceName: "+gpu), slice(t, "n1", small+","+large),
					deviceClass(t, "a", "extendedResourceName: example.com/twice"), deviceClass(t, "plugged",
						"extendedResourceName: example.com/plugged"),
					deviceClaim(t, "c", "requests: [{name: r, exactly: {deviceClassName: any}}]"))
				time.Sleep(time.Minute)
				api.Create(deviceClass(t, "b", `extendedResourceName: example.com/twice, `+
					`selectors: [{cel: {expression: 'device.attributes["d.example.com"].size > 4'}}]`),
					apitest.Pod("default", "p", c.pod...))
				api.Run(apitest.Must(New(api.Deps(), &api.Events, Config{})))
				if got := placed(api, "p"); !strings.Contains(got, c.where) {
					t.Errorf("%q, want %q", got, c.where)
				}
				if got := special(api, "p"); got != c.has {
					t.Errorf("%q, want %q", got, c.has)
				}
			})
		})
	}
}

// A pod waits for the device class of its extended resource. The scheduler replaces a claim that an interrupted attempt
// created.
func TestClaimsForExtendedResourcesAreReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		addNodes(api, "n1")
		api.Create(slice(t, "n1", small), apitest.Pod("default", "p", wanting("example.com/gpu", 1)))
		stale := deviceClaim(t, "stale", "requests: [{name: r, exactly: {deviceClassName: any}}]")
		stale.Annotations = map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"}
		stale.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(apitest.Existing[*corev1.Pod](api, "default",
			"p"), corev1.SchemeGroupVersion.WithKind("Pod"))}
		api.Create(stale)
		api.Run(apitest.Must(New(api.Deps(), &api.Events, Config{})))
		if got := placed(api, "p"); !strings.Contains(got, "Insufficient example.com/gpu") {
			t.Errorf("%q", got)
		}
		api.Create(deviceClass(t, "any", "extendedResourceName: example.com/gpu"))
		apitest.Settle(backoffs)
		if got := placed(api, "p") + " " + special(api, "p"); got != "n1 c:example.com/gpu=container-0-request-0 "+
			"container-0-request-0=small for p" {
			t.Errorf("%q", got)
		}
		if _, ok := apitest.Get[*resourcev1.ResourceClaim](api, "default", "stale"); ok {
			t.Error("the claim of the interrupted attempt was not deleted")
		}
	})
}

const (
	slow   = "{name: slow, bindingConditions: [d.example.com/ready], bindingFailureConditions: [d.example.com/failed]}"
	slower = "{name: slower, bindingConditions: [d.example.com/ready], bindingFailureConditions: [d.example.com/failed]}"
)

// report sets a condition of the claim's device.
func report(api *apitest.API, claim, condition string) {
	apitest.Change(api, apitest.Existing[*resourcev1.ResourceClaim](api, "default", claim), "status",
		func(c *resourcev1.ResourceClaim) {
			r := c.Status.Allocation.Devices.Results[0]
			c.Status.Devices = []resourcev1.AllocatedDeviceStatus{{Driver: r.Driver, Pool: r.Pool, Device: r.Device,
				Conditions: []metav1.Condition{
					{Type: "d.example.com/" + condition, Status: "True", Reason: "Done", LastTransitionTime: metav1.Now()}}}}
		})
}

// A pod is bound when the binding conditions of its device are true. If one fails or the timeout ends, the device is
// deallocated, and the pod gets another one.
func TestPodWaitsUntilItsDeviceIsReady(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]func(api *apitest.API, other func()){
		"ready":  func(api *apitest.API, _ func()) { report(api, "c", "ready") },
		"failed": func(api *apitest.API, other func()) { other(); report(api, "c", "failed") },
		"late":   func(_ *apitest.API, other func()) { other(); time.Sleep(11 * time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				api := apitest.New(t)
				addNodes(api, "n1")
				api.Create(deviceClass(t, "any", ""), slice(t, "n1", slow),
					deviceClaim(t, "c", "requests: [{name: r, exactly: {deviceClassName: any}}]"),
					apitest.Pod("default", "p", claiming("c")))
				api.Run(apitest.Must(New(api.Deps(), &api.Events, Config{})))
				apitest.Settle(5 * time.Minute)
				if got := placed(api, "p") + has(api, "c"); got != "r=slow for p" {
					t.Fatalf("%q", got)
				}
				want := "n1 r=slow for p"
				act(api, func() {
					want = "n1 r=small for p"
					apitest.Change(api, slice(t, "n1", slow), "", func(s *resourcev1.ResourceSlice) {
						s.Spec.Devices = slice(t, "n1",
							small).Spec.Devices
					})
				})
				apitest.Settle(2 * backoffs)
				if got := placed(api, "p") + " " + has(api, "c"); got != want {
					t.Errorf("%q, want %q", got, want)
				}
			})
		})
	}
}

// A pod that waits for its device keeps it when the process is restarted.
func TestWaitForADeviceGoesOnAfterARestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		addNodes(api, "n1")
		api.Create(deviceClass(t, "any", "extendedResourceName: example.com/gpu"), slice(t, "n1", slower),
			apitest.Pod("default", "p", wanting("example.com/gpu", 1)))
		c := apitest.Must(New(api.Deps(), &api.Events, Config{}))
		restart := api.Restarting(func() follow.Controller { return c })
		apitest.Settle(time.Second)
		before := special(api, "p")
		restart()
		apitest.Settle(time.Second)
		if got := placed(api, "p") + special(api, "p"); got != before || !strings.HasSuffix(got, "=slower for p") {
			t.Fatalf("%q, before %q", got, before)
		}
		report(api, apitest.Existing[*corev1.Pod](api, "default", "p").Status.ExtendedResourceClaimStatus.ResourceClaimName,
			"ready")
		apitest.Settle(time.Second)
		if got := placed(api, "p"); got != "n1" {
			t.Errorf("%q", got)
		}
		if n := len(apitest.List[*resourcev1.ResourceClaim](api, "")); n != 1 {
			t.Errorf("%d claims", n)
		}
	})
}

// Init containers use the devices of later containers. Init containers that need more share the additional devices.
func TestRequestsOfContainers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		addNodes(api, "n1")
		var all []string
		for i := range 9 {
			all = append(all, fmt.Sprintf("{name: d%d}", i))
		}
		api.Create(deviceClass(t, "any", "extendedResourceName: example.com/gpu"), slice(t, "n1", strings.Join(all, ",")))
		always := corev1.ContainerRestartPolicyAlways
		api.Create(apitest.Pod("default", "p", wanting("example.com/gpu", 2), func(p *corev1.Pod) {
			of := func(name string, n int64, policy *corev1.ContainerRestartPolicy) corev1.Container {
				c := p.Spec.Containers[0]
				one := *apitest.Pod("default", "x", wanting("example.com/gpu", n))
				c.Name, c.RestartPolicy, c.Resources = name, policy, one.Spec.Containers[0].Resources
				return c
			}
			p.Spec.InitContainers = []corev1.Container{of("small", 1, nil), of("large", 5, nil), of("side", 1, &always),
				of("larger", 4, nil)}
		}))
		api.Run(apitest.Must(New(api.Deps(), &api.Events, Config{})))
		const r = ":example.com/gpu=container-"
		want := []string{"side" + r + "2-request-0", "c" + r + "4-request-0", "small" + r + "2-request-0", "large" + r +
			"2-request-0", "large" + r + "4-request-0",
			"large" + r + "1-request-0", "larger" + r + "4-request-0", "larger" + r + "1-request-0"}
		got := strings.Fields(special(api, "p"))
		if len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
			t.Errorf("%q", got)
		}
		// 1 for the sidecar, 2 for the container, 2 more for the init containers
		if n := len(apitest.List[*resourcev1.ResourceClaim](api, "")[0].Status.Allocation.Devices.Results); n != 5 {
			t.Errorf("%d devices", n)
		}
	})
}
