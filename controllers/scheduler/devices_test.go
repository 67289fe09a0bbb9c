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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"monopod/apiserver/kit/client"
	"monopod/controllers/internal/apitest"
	"monopod/controllers/podstate"
)

// object decodes a spec in YAML.
func object[T client.Object](t *testing.T, obj T, kind, name, spec string) T {
	t.Helper()
	text := fmt.Sprintf("{apiVersion: resource.k8s.io/v1, kind: %s, metadata: {name: %s}, spec: {%s}}", kind, name, spec)
	if err := yaml.UnmarshalStrict([]byte(text), obj); err != nil {
		t.Fatal(err)
	}
	return obj
}

func deviceClaim(t *testing.T, name, spec string) *resourcev1.ResourceClaim {
	c := object(t, &resourcev1.ResourceClaim{}, "ResourceClaim", name, "devices: {"+spec+"}")
	c.Namespace = "default"
	return c
}

func deviceClass(t *testing.T, name, spec string) *resourcev1.DeviceClass {
	return object(t, &resourcev1.DeviceClass{}, "DeviceClass", name, spec)
}

// slice publishes devices of the driver d.example.com on a node, in a pool that has the name of the node.
func slice(t *testing.T, node, devices string) *resourcev1.ResourceSlice {
	return object(t, &resourcev1.ResourceSlice{}, "ResourceSlice", "slice-"+node,
		"driver: d.example.com, nodeName: "+node+", pool: {name: "+node+", resourceSliceCount: 1, generation: 1}, devices: ["+
			devices+"]")
}

// claiming adds resource claims to a pod.
func claiming(names ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for i, name := range names {
			p.Spec.ResourceClaims = append(p.Spec.ResourceClaims,
				corev1.PodResourceClaim{Name: fmt.Sprintf("c%d", i), ResourceClaimName: &name})
		}
	}
}

// backoffs is longer than the maximum backoff of a pod.
const backoffs = 15 * time.Second

// has formats a claim: its devices by request, and the pods in reservedFor.
func has(api *apitest.API, claim string) string {
	c := apitest.Existing[*resourcev1.ResourceClaim](api, "default", claim)
	var parts []string
	if a := c.Status.Allocation; a != nil {
		for _, r := range a.Devices.Results {
			parts = append(parts, r.Request+"="+r.Device)
		}
		slices.Sort(parts)
		if !slices.Contains(c.Finalizers, resourcev1.Finalizer) {
			parts = append(parts, "unprotected")
		}
	}
	for _, r := range c.Status.ReservedFor {
		parts = append(parts, "for "+r.Name)
	}
	return strings.Join(parts, " ")
}

// placed returns the node of a pod, or the message of its condition PodScheduled.
func placed(api *apitest.API, pod string) string {
	p := apitest.Existing[*corev1.Pod](api, "default", pod)
	if p.Spec.NodeName != "" {
		return p.Spec.NodeName
	}
	if c := podstate.Condition(p, corev1.PodScheduled); c != nil {
		return c.Message
	}
	return ""
}

const (
	small = "{name: small, attributes: {size: {int: 1}, vendor.example.com/card: {string: a}}, " +
		"capacity: {memory: {value: 1Gi}}}"
	large = "{name: large, attributes: {size: {int: 8}, vendor.example.com/card: {string: a}}, " +
		"capacity: {memory: {value: 80Gi}}}"
	other = "{name: other, attributes: {size: {int: 8}, vendor.example.com/card: {string: b}}, " +
		"capacity: {memory: {value: 80Gi}}}"
	sick = "{name: sick, attributes: {size: {int: 9}}, taints: [{key: d.example.com/sick, value: 'yes', " +
		"effect: NoSchedule}]}"
)

func TestDevicesOfClaims(t *testing.T) {
	t.Parallel()
	selected := func(cel string) string {
		return `requests: [{name: r, exactly: {deviceClassName: any, selectors: [{cel: {expression: '` + cel + `'}}]}}]`
	}
	const (
		cannot = "cannot allocate all claims"
		one    = "requests: [{name: r, exactly: {deviceClassName: any}}]"
	)
	for name, c := range map[string]struct {
		claim, want string // want is the allocation, or a part of the message of an unscheduled pod
		devices     []string
	}{
		"the first":    {claim: one, want: "r=small for p"},
		"by attribute": {claim: selected(`device.attributes["d.example.com"].size > 4`), want: "r=large for p"},
		"by qualified attribute": {claim: selected(`device.attributes["vendor.example.com"].card == "b"`),
			want: "r=other for p"},
		"by capacity": {claim: selected(`device.capacity["d.example.com"].memory.isGreaterThan(quantity("2Gi"))`),
			want: "r=large for p"},
		"of another driver": {claim: selected(`device.driver == "e.example.com"`), want: cannot},
		"an attribute is missing": {claim: selected(`device.attributes["d.example.com"].color == "red"`),
			want: "no such key: color"},
		"by class": {claim: "requests: [{name: r, exactly: {deviceClassName: big}}]", want: "r=large for p"},
		"unknown class": {claim: "requests: [{name: r, exactly: {deviceClassName: none}}]",
			want: "request r: device class none does not exist"},
		"two": {claim: "requests: [{name: r, exactly: {deviceClassName: any, count: 2}}]",
			want: "r=large r=small for p"},
		"too many": {claim: "requests: [{name: r, exactly: {deviceClassName: any, count: 4}}]", want: cannot},
		"all": {claim: "requests: [{name: r, exactly: {deviceClassName: any, allocationMode: All}}]",
			devices: []string{small, large}, want: "r=large r=small for p"},
		"all, none": {claim: "requests: [{name: r, exactly: {deviceClassName: big, allocationMode: All}}]",
			devices: []string{small}, want: cannot},
		"two requests": {claim: "requests: [{name: r, exactly: {deviceClassName: any}}, {name: s, " +
			"exactly: {deviceClassName: big}}]", want: "r=small s=large for p"},
		"first alternative": {claim: "requests: [{name: r, firstAvailable: [{name: big, deviceClassName: big}, " +
			"{name: any, deviceClassName: any}]}]", want: "r/big=large for p"},
		"second alternative": {claim: "requests: [{name: r, firstAvailable: [{name: big, deviceClassName: big, " +
			"count: 3}, {name: any, deviceClassName: any}]}]", want: "r/any=small for p"},
		"different attributes": {claim: "requests: [{name: r, exactly: {deviceClassName: big, count: 2}}], " +
			"constraints: [{matchAttribute: vendor.example.com/card}]", want: cannot},
		"the same attribute": {claim: "requests: [{name: r, exactly: {deviceClassName: any, count: 2}}], " +
			"constraints: [{matchAttribute: vendor.example.com/card}]", want: "r=large r=small for p"},
		"tainted": {claim: one, devices: []string{sick}, want: cannot},
		"tolerated": {claim: "requests: [{name: r, exactly: {deviceClassName: any, " +
			"tolerations: [{operator: Exists}]}}]", devices: []string{sick}, want: "r=sick for p"},
		"another taint tolerated": {claim: "requests: [{name: r, exactly: {deviceClassName: any, " +
			"tolerations: [{key: d.example.com/hot, operator: Exists}]}}]", devices: []string{sick}, want: cannot},
		"no devices": {claim: one, devices: []string{}, want: cannot},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				api := apitest.New(t)
				addNodes(api, "n1")
				if c.devices == nil {
					c.devices = []string{small, large, other}
				}
				api.Create(deviceClass(t, "any", "selectors: [{cel: {expression: 'device.driver == \"d.example.com\"'}}]"),
					deviceClass(t, "big", "selectors: [{cel: {expression: 'device.attributes[\"d.example.com\"].size > 4'}}]"),
					slice(t, "n1", strings.Join(c.devices, ",")), deviceClaim(t, "c", c.claim), apitest.Pod("default", "p",
						claiming("c")))
				api.Run(apitest.Must(New(api.Deps(), &api.Events, Config{})))
				if where := placed(api, "p"); where == "n1" {
					if got := has(api, "c"); got != c.want {
						t.Errorf("has %q, want %q", got, c.want)
					}
				} else if !strings.Contains(where, c.want) {
					t.Errorf("%q, want %q", where, c.want)
				}
			})
		})
	}
}

// A DeviceTaintRule taints devices until it is deleted.
func TestRulesTaintDevices(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		addNodes(api, "n1")
		rule := object(t, &resourcev1.DeviceTaintRule{}, "DeviceTaintRule", "r",
			"deviceSelector: {device: small}, taint: {key: k, effect: NoExecute}")
		api.Create(deviceClass(t, "any", ""), slice(t, "n1", small), rule,
			deviceClaim(t, "c", "requests: [{name: r, exactly: {deviceClassName: any}}]"),
			apitest.Pod("default", "p", claiming("c")))
		api.Run(apitest.Must(New(api.Deps(), &api.Events, Config{})))
		if got := placed(api, "p"); !strings.Contains(got, "cannot allocate all claims") {
			t.Errorf("%q", got)
		}
		api.Delete(rule, "")
		apitest.Settle(backoffs)
		if got := placed(api, "p"); got != "n1" {
			t.Errorf("%q", got)
		}
	})
}

// If two pods need the same device, the second pod waits until the first one's claim is deallocated.
func TestPodWaitsForADevice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		addNodes(api, "n1")
		one := "requests: [{name: r, exactly: {deviceClassName: any}}]"
		api.Create(deviceClass(t, "any", ""), slice(t, "n1", small), deviceClaim(t, "a", one), deviceClaim(t, "b", one),
			apitest.Pod("default", "a", claiming("a")), apitest.Pod("default", "b", claiming("b")))
		api.Run(apitest.Must(New(api.Deps(), &api.Events, Config{})))
		first, second := "a", "b"
		if placed(api, "a") != "n1" {
			first, second = second, first
		}
		if got := placed(api, second); !strings.Contains(got, "0/1 nodes are available: 1 cannot allocate all claims.") {
			t.Fatalf("%q", got)
		}
		if a, b := has(api, first), has(api, second); a != "r=small for "+first || b != "" {
			t.Fatalf("%q, %q", a, b)
		}
		apitest.Change(api, deviceClaim(t, first, one), "status",
			func(c *resourcev1.ResourceClaim) { c.Status = resourcev1.ResourceClaimStatus{} })
		apitest.Settle(backoffs)
		if got := placed(api, second) + " " + has(api, second); got != "n1 r=small for "+second {
			t.Errorf("%q", got)
		}
	})
}

// A waiting pod is scheduled after the creation of its claim, device class or slice, and after the removal of a taint.
func TestChangesThatPodsWithClaimsWaitFor(t *testing.T) {
	t.Parallel()
	one := "requests: [{name: r, exactly: {deviceClassName: any}}]"
	for name, c := range map[string]struct {
		before func(t *testing.T) []client.Object
		want   string
		change func(t *testing.T, api *apitest.API)
	}{
		"claim": {
			func(t *testing.T) []client.Object {
				return []client.Object{deviceClass(t, "any", ""), slice(t, "n1", small)}
			},
			`resourceclaim.resource.k8s.io "c" not found`,
			func(t *testing.T, api *apitest.API) { api.Create(deviceClaim(t, "c", one)) },
		},
		"class": {
			func(t *testing.T) []client.Object {
				return []client.Object{deviceClaim(t, "c", one), slice(t, "n1", small)}
			},
			"request r: device class any does not exist",
			func(t *testing.T, api *apitest.API) { api.Create(deviceClass(t, "any", "")) },
		},
		"slice": {
			func(t *testing.T) []client.Object {
				return []client.Object{deviceClaim(t, "c", one), deviceClass(t, "any", "")}
			},
			"cannot allocate all claims",
			func(t *testing.T, api *apitest.API) { api.Create(slice(t, "n1", small)) },
		},
		"taint": {
			func(t *testing.T) []client.Object {
				return []client.Object{deviceClaim(t, "c", one), deviceClass(t, "any", ""), slice(t, "n1", sick)}
			},
			"cannot allocate all claims",
			func(t *testing.T, api *apitest.API) {
				apitest.Change(api, slice(t, "n1", sick), "", func(s *resourcev1.ResourceSlice) { s.Spec.Devices[0].Taints = nil })
			},
		},
		"pool of two slices": {
			func(t *testing.T) []client.Object {
				half := slice(t, "n1", small)
				half.Spec.Pool.ResourceSliceCount = 2
				return []client.Object{deviceClaim(t, "c", strings.Replace(one, "any", "any, allocationMode: All", 1)),
					deviceClass(t, "any", ""), half}
			},
			"asks for all devices, but resource pool d.example.com/n1 is currently being updated",
			func(t *testing.T, api *apitest.API) {
				rest := slice(t, "n1", large)
				rest.Name, rest.Spec.Pool.ResourceSliceCount = "rest", 2
				api.Create(rest)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				api := apitest.New(t)
				addNodes(api, "n1")
				api.Create(c.before(t)...)
				api.Create(apitest.Pod("default", "p", claiming("c")))
				api.Run(apitest.Must(New(api.Deps(), &api.Events, Config{})))
				if got := placed(api, "p"); !strings.Contains(got, c.want) {
					t.Fatalf("%q, want %q", got, c.want)
				}
				c.change(t, api)
				apitest.Settle(backoffs)
				if got := placed(api, "p"); got != "n1" {
					t.Errorf("%q", got)
				}
			})
		})
	}
}

// Two pods that share a claim are bound to the node of its devices.
func TestPodsShareAClaim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		addNodes(api, "a", "b", "c")
		api.Create(deviceClass(t, "any", ""), slice(t, "b", small),
			deviceClaim(t, "c", "requests: [{name: r, exactly: {deviceClassName: any}}]"),
			apitest.Pod("default", "p", claiming("c")), apitest.Pod("default", "q", claiming("c")))
		api.Run(apitest.Must(New(api.Deps(), &api.Events, Config{})))
		apitest.Settle(backoffs)
		if placed(api, "p") != "b" || placed(api, "q") != "b" {
			t.Errorf("%q, %q", placed(api, "p"), placed(api, "q"))
		}
		if got := has(api, "c"); got != "r=small for p for q" && got != "r=small for q for p" {
			t.Errorf("%q", got)
		}
	})
}

// A pod waits until the claim of its ResourceClaimTemplate exists.
func TestPodWaitsForTheClaimOfItsTemplate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Events.Watch()
		addNodes(api, "n1")
		api.Create(deviceClass(t, "any", ""), slice(t, "n1", small), apitest.Pod("default", "p", func(p *corev1.Pod) {
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: new("t")}}
		}))
		api.Run(apitest.Must(New(api.Deps(), &api.Events, Config{})))
		if got := placed(api, "p"); !strings.Contains(got,
			`waiting for resource claim controller to create the resourceclaim for pod claim "gpu"`) {
			t.Fatalf("%q", got)
		}
		if n := api.Events.Count(); n["FailedScheduling"] != 0 {
			t.Errorf("events %v", n)
		}
		made := deviceClaim(t, "made", "requests: [{name: r, exactly: {deviceClassName: any}}]")
		pod := apitest.Existing[*corev1.Pod](api, "default", "p")
		made.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pod,
			corev1.SchemeGroupVersion.WithKind("Pod"))}
		api.Create(made)
		apitest.Change(api, pod, "status", func(p *corev1.Pod) {
			p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: new("made")}}
		})
		apitest.Settle(backoffs)
		if got := placed(api, "p") + " " + has(api, "made"); got != "n1 r=small for p" {
			t.Errorf("%q", got)
		}
	})
}

// The scheduler deallocates a claim whose devices are on another node, unless another pod uses it.
func TestDevicesOfAnotherNodeAreGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		addNodes(api, "n1")
		one := "requests: [{name: r, exactly: {deviceClassName: any}}]"
		api.Create(deviceClass(t, "any", ""), slice(t, "n1", small), deviceClaim(t, "c", one))
		apitest.Change(api, deviceClaim(t, "c", one), "status", func(c *resourcev1.ResourceClaim) {
			c.Status.Allocation = &resourcev1.AllocationResult{
				Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{Request: "r",
					Driver: "d.example.com", Pool: "old", Device: "old"}}},
				NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
					{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"old"}}}}}},
			}
		})
		api.Create(apitest.Pod("default", "p", claiming("c")))
		api.Run(apitest.Must(New(api.Deps(), &api.Events, Config{})))
		apitest.Settle(backoffs)
		if got := placed(api, "p") + " " + has(api, "c"); got != "n1 r=small for p" {
			t.Errorf("%q", got)
		}
	})
}

// If many pods compete for few devices, no device is allocated twice, and every pod gets one when earlier pods have
// ended.
func TestDevicesAreNeverGivenTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const devices, pods = 3, 12
		api := apitest.New(t)
		addNodes(api, "n1")
		var list []string
		for i := range devices {
			list = append(list, fmt.Sprintf("{name: d%d}", i))
		}
		api.Create(deviceClass(t, "any", ""), slice(t, "n1", strings.Join(list, ",")))
		for i := range pods {
			name := fmt.Sprintf("p%d", i)
			api.Create(deviceClaim(t, name, "requests: [{name: r, exactly: {deviceClassName: any}}]"),
				apitest.Pod("default", name, claiming(name)))
		}
		api.Run(apitest.Must(New(api.Deps(), &api.Events, Config{})))
		for range pods / devices {
			apitest.Settle(backoffs)
			used := map[string]string{}
			for _, c := range apitest.List[*resourcev1.ResourceClaim](api, "default") {
				if c.Status.Allocation == nil {
					continue
				}
				device := c.Status.Allocation.Devices.Results[0].Device
				if used[device] != "" {
					t.Fatalf("%s has two claims, %s and %s", device, used[device], c.Name)
				}
				used[device] = c.Name
			}
			if len(used) != devices {
				t.Fatalf("%d devices are allocated", len(used))
			}
			for _, name := range used {
				api.EndPod(apitest.Existing[*corev1.Pod](api, "default", name))
				api.Delete(apitest.Existing[*resourcev1.ResourceClaim](api, "default", name), "")
				apitest.Change(api, deviceClaim(t, name, ""), "status",
					func(c *resourcev1.ResourceClaim) { c.Status = resourcev1.ResourceClaimStatus{} })
				apitest.Change(api, deviceClaim(t, name, ""), "", func(c *resourcev1.ResourceClaim) { c.Finalizers = nil })
			}
		}
		apitest.Settle(backoffs)
		if left := apitest.List[*resourcev1.ResourceClaim](api, "default"); len(left) != 0 {
			t.Errorf("%d claims were never allocated", len(left))
		}
	})
}
