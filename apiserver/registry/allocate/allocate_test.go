package allocate_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"monopod/apiserver/registry/allocate"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/service"
)

// cluster stores Services and allocates for them as the registry does.
type cluster struct {
	t *testing.T
	*allocate.Services
	mu     sync.Mutex
	stored map[types.UID]*corev1.Service
}

func newCluster(t *testing.T, addresses, ports string) *cluster {
	t.Helper()
	cfg, err := allocate.Ranges{Addresses: addresses, Ports: ports}.Parse()
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, stored: map[types.UID]*corev1.Service{}}
	c.Services = allocate.New(cfg, allocate.Stored{Services: c.list})
	return c
}

func (c *cluster) list(context.Context) ([]*corev1.Service, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*corev1.Service
	for _, s := range c.stored {
		all = append(all, s)
	}
	return all, nil
}

// read returns a Service as allocation gets it. Its UID is its name.
func (c *cluster) read(name, spec string) *corev1.Service {
	c.t.Helper()
	svc := &corev1.Service{}
	if err := yaml.UnmarshalStrict([]byte(`{spec: {`+spec+`}}`), svc); err != nil {
		c.t.Fatal(err)
	}
	svc.Name, svc.Namespace, svc.UID = name, "default", types.UID(name)
	return svc
}

func serviceKind() kind.Resource {
	for _, r := range service.Resources() {
		if r.Kind == "Service" {
			return r
		}
	}
	panic("no kind Service")
}

// write creates or updates a Service as the registry does.
func (c *cluster) write(next *corev1.Service) error {
	r := serviceKind()
	c.mu.Lock()
	cur := c.stored[next.UID]
	c.mu.Unlock()
	var old kind.Object
	if cur != nil {
		old = cur
	}
	r.Default(next)
	r.Prepare(next, old, "")
	r.Default(next)
	release, err := c.Reserve(c.t.Context(), next, cur)
	defer release()
	if err != nil {
		return err
	}
	if errs := r.Validate(next, old, ""); len(errs) > 0 {
		return errs.ToAggregate()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stored[next.UID] = next
	return nil
}

func (c *cluster) apply(name, spec string) *corev1.Service {
	c.t.Helper()
	svc := c.read(name, spec)
	if err := c.write(svc); err != nil {
		c.t.Fatalf("%s {%s}: %v", name, spec, err)
	}
	return svc
}

const onePort = `ports: [{port: 80}]`

func TestAddressesAreUnique(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "10.96.0.0/27", "30000-30010") // 32 addresses without the first, the last and kubernetes'
	seen := map[string]bool{}
	for i := range 29 {
		svc := c.apply(fmt.Sprintf("s%d", i), onePort)
		ip := svc.Spec.ClusterIP
		if seen[ip] || !netip.MustParsePrefix("10.96.0.0/27").Contains(netip.MustParseAddr(ip)) ||
			len(svc.Spec.ClusterIPs) != 1 {
			t.Fatalf("%d: %s after %v", i, ip, seen)
		}
		if last := netip.MustParseAddr(ip).As4()[3]; i < 15 && last < 16 {
			t.Errorf("%d: %s is in the range for static addresses", i, ip)
		}
		seen[ip] = true
	}
	if seen["10.96.0.0"] || seen["10.96.0.1"] || seen["10.96.0.31"] {
		t.Errorf("a reserved address was allocated: %v", seen)
	}
	err := c.write(c.read("more", onePort))
	if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "range is full") {
		t.Errorf("got %v", err)
	}
	delete(c.stored, "s7")
	c.apply("more", onePort)
}

func TestConcurrentAllocations(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "10.96.0.0/24", "30000-30199")
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			if err := c.write(c.read(fmt.Sprintf("s%d", i), `type: NodePort, `+onePort)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	ips, ports := map[string]bool{}, map[int32]bool{}
	for _, s := range c.stored {
		ips[s.Spec.ClusterIP], ports[s.Spec.Ports[0].NodePort] = true, true
	}
	if len(ips) != 100 || len(ports) != 100 {
		t.Errorf("100 Services share %d addresses and %d ports", len(ips), len(ports))
	}
}

func TestAddressGoesToFirstRequest(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "10.96.0.0/24", "30000-30199")
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for i := range 20 {
		wg.Go(func() {
			err := c.write(c.read(fmt.Sprintf("s%d", i), `clusterIP: 10.96.0.9, `+onePort))
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won++
			} else if !apierrors.IsInvalid(err) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won != 1 {
		t.Errorf("%d Services have one address", won)
	}
}

func TestFailedWritesReleaseAddresses(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "10.96.0.0/24", "30000-30000")
	release, err := c.Reserve(t.Context(),
		c.read("a", `type: NodePort, clusterIP: 10.96.0.9, clusterIPs: [10.96.0.9], `+onePort), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.write(c.read("b", `clusterIP: 10.96.0.9, `+onePort)); !apierrors.IsInvalid(err) {
		t.Errorf("an address in use was allocated again: %v", err)
	}
	release()
	c.apply("b", `type: NodePort, clusterIP: 10.96.0.9, `+onePort)
}

func TestInvalidAllocations(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ spec, field, text string }{
		{`clusterIP: 10.96.0.1, ` + onePort, "spec.clusterIPs",
			"failed to allocate IP 10.96.0.1: provided IP is already allocated"},
		{`clusterIP: 10.96.0.5, ` + onePort, "spec.clusterIPs",
			"failed to allocate IP 10.96.0.5: provided IP is already allocated"},
		{`clusterIP: 10.96.0.0, ` + onePort, "spec.clusterIPs", "the provided network does not match the current range"},
		{`clusterIP: 10.96.0.255, ` + onePort, "spec.clusterIPs", "the provided network does not match the current range"},
		{`clusterIP: 1.2.3.4, ` + onePort, "spec.clusterIPs", "the provided network does not match the current range"},
		{`clusterIP: "fd00::1", ` + onePort, "spec.clusterIPs[0]", "IPv6 is not configured on this cluster"},
		{`clusterIP: nonsense, ` + onePort, "spec.clusterIPs[0]", "must be a valid IP address"},
		{`ipFamilies: [IPv6], ` + onePort, "spec.ipFamilies[0]", "not configured on this cluster"},
		{`ipFamilyPolicy: RequireDualStack, ` + onePort, "spec.ipFamilyPolicy",
			"this cluster is not configured for dual-stack services"},
		{`ipFamilies: [IPv4, IPv6], ` + onePort, "spec.ipFamilyPolicy", "when multiple IP families are specified"},
		{`type: NodePort, ports: [{port: 80, nodePort: 80}]`, "spec.ports[0].nodePort",
			"provided port is not in the valid range. The range of valid ports is 30000-30099"},
		{`type: NodePort, ports: [{port: 80, nodePort: 30005}]`, "spec.ports[0].nodePort",
			"provided port is already allocated"},
		{`type: NodePort, ports: [{name: a, port: 80, nodePort: 30006}, {name: b, port: 81, nodePort: 30006, protocol: UDP}]`,
			"spec.ports[1].nodePort", "provided port is already allocated"},
		{`type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 30005, ` + onePort,
			"spec.healthCheckNodePort", "provided port is already allocated"},
	} {
		t.Run(c.spec, func(t *testing.T) {
			t.Parallel()
			cl := newCluster(t, "10.96.0.0/24", "30000-30099")
			cl.apply("first", `type: NodePort, clusterIP: 10.96.0.5, ports: [{port: 80, nodePort: 30005}]`)
			err := cl.write(cl.read("second", c.spec))
			var status *apierrors.StatusError
			if !errors.As(err, &status) || !apierrors.IsInvalid(err) {
				t.Fatalf("got %v", err)
			}
			causes := status.ErrStatus.Details.Causes
			if len(causes) != 1 || causes[0].Field != c.field || !strings.Contains(causes[0].Message, c.text) {
				t.Errorf("got %+v", causes)
			}
		})
	}
}

// what returns the allocated fields of a Service as text.
func what(s *corev1.Service) string {
	text := fmt.Sprint(s.Spec.ClusterIPs, s.Spec.IPFamilies)
	if p := s.Spec.IPFamilyPolicy; p != nil {
		text += " " + string(*p)
	}
	return text
}

func TestFamilies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ ranges, spec, want string }{
		{"10.96.0.0/24", onePort + `, clusterIP: 10.96.0.9`, "[10.96.0.9] [IPv4] SingleStack"},
		{"fd00::/125", onePort + `, clusterIP: "fd00::7"`, "[fd00::7] [IPv6] SingleStack"},
		{"10.96.0.0/24", onePort + `, clusterIP: 10.96.0.9, ipFamilyPolicy: PreferDualStack`,
			"[10.96.0.9] [IPv4] PreferDualStack"},
		{"10.96.0.0/24", `clusterIP: None, selector: {a: b}`, "[None] [IPv4] SingleStack"},
		{"10.96.0.0/24", `clusterIP: None`, "[None] [IPv4 IPv6] RequireDualStack"},
		{"10.96.0.0/24", `type: ExternalName, externalName: a`, "[] []"},
		{"10.96.0.0/24,fd00::/125", onePort +
			`, clusterIP: 10.96.0.9, clusterIPs: [10.96.0.9, "fd00::5"], ipFamilyPolicy: RequireDualStack`,
			"[10.96.0.9 fd00::5] [IPv4 IPv6] RequireDualStack"},
		{"fd00::/125,10.96.0.0/24", onePort + `, clusterIP: "fd00::5"`, "[fd00::5] [IPv6] SingleStack"},
	} {
		cl := newCluster(t, c.ranges, "30000-30099")
		if got := what(cl.apply("s", c.spec)); got != c.want {
			t.Errorf("%s {%s}: %s, want %s", c.ranges, c.spec, got, c.want)
		}
	}
	both := newCluster(t, "10.96.0.0/24,fd00::/120", "30000-30099").apply("s", onePort+`, ipFamilyPolicy: PreferDualStack`)
	if len(both.Spec.ClusterIPs) != 2 || service.FamilyOf(both.Spec.ClusterIPs[1]) != corev1.IPv6Protocol ||
		both.Spec.ClusterIP != both.Spec.ClusterIPs[0] {
		t.Errorf("got %s", what(both))
	}
}

func TestSecondFamilyIsAddedAndRemoved(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "10.96.0.0/24,fd00::/120", "30000-30099")
	one := c.apply("s", onePort)
	two := c.apply("s", onePort+`, ipFamilyPolicy: RequireDualStack`)
	if len(two.Spec.ClusterIPs) != 2 || two.Spec.ClusterIP != one.Spec.ClusterIP {
		t.Fatalf("got %s after %s", what(two), what(one))
	}
	same := c.apply("s", onePort+`, ipFamilyPolicy: RequireDualStack`)
	if diff := cmp.Diff(two.Spec.ClusterIPs, same.Spec.ClusterIPs); diff != "" {
		t.Error(diff)
	}
	less := c.apply("s", onePort+`, ipFamilyPolicy: SingleStack, ipFamilies: [IPv4, IPv6]`)
	if what(less) != what(one) {
		t.Errorf("got %s, want %s", what(less), what(one))
	}
	c.apply("other", onePort+fmt.Sprintf(`, clusterIP: %q, ipFamilies: [IPv6]`, two.Spec.ClusterIPs[1]))
}

func TestTypesChange(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "10.96.0.0/24", "30000-30001")
	first := c.apply("s", `type: LoadBalancer, externalTrafficPolicy: Local, `+onePort)
	if first.Spec.HealthCheckNodePort == 0 || first.Spec.HealthCheckNodePort == first.Spec.Ports[0].NodePort {
		t.Fatalf("got %+v", first.Spec)
	}
	inside := c.apply("s", onePort)
	if inside.Spec.ClusterIP != first.Spec.ClusterIP || inside.Spec.Ports[0].NodePort != 0 ||
		inside.Spec.HealthCheckNodePort != 0 {
		t.Errorf("got %+v", inside.Spec)
	}
	// Both node ports were released.
	c.apply("both", `type: NodePort, ports: [{name: a, port: 80, nodePort: 30000}, {name: b, port: 81, nodePort: 30001}]`)
	c.apply("s", `type: ExternalName, externalName: a`)
	c.apply("other", `clusterIP: `+first.Spec.ClusterIP+`, `+onePort)
	back := c.apply("s", onePort)
	if back.Spec.ClusterIP == first.Spec.ClusterIP || back.Spec.ClusterIP == "" {
		t.Errorf("got %s, had %s", back.Spec.ClusterIP, first.Spec.ClusterIP)
	}
}

func TestNodePorts(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "10.96.0.0/24", "30000-32767")
	dns := c.apply("dns",
		`type: NodePort, ports: [{name: t, port: 53}, {name: u, port: 53, protocol: UDP}, {name: m, port: 9153}]`).Spec.Ports
	if dns[0].NodePort != dns[1].NodePort || dns[0].NodePort == dns[2].NodePort || dns[0].NodePort < 30086 {
		t.Errorf("got %v", dns)
	}
	asked := c.apply("asked",
		`type: NodePort, ports: [{name: t, port: 53}, {name: u, port: 53, protocol: UDP, nodePort: 30053}]`).Spec.Ports
	if asked[0].NodePort != 30053 || asked[1].NodePort != 30053 {
		t.Errorf("got %v", asked)
	}
	none := c.apply("none",
		`type: LoadBalancer, allocateLoadBalancerNodePorts: false, ports: [{name: a, port: 80}, {name: b, port: 81, `+
			`nodePort: 30081}]`).Spec.Ports
	if none[0].NodePort != 0 || none[1].NodePort != 30081 {
		t.Errorf("got %v", none)
	}
	kept := c.apply("dns",
		`type: NodePort, ports: [{name: u, port: 53, protocol: UDP}, {name: more, port: 80}]`).Spec.Ports
	if kept[0].NodePort != dns[1].NodePort || kept[1].NodePort == 0 {
		t.Errorf("got %v", kept)
	}
}

func TestServiceKubernetes(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "10.96.0.0/24", "30000-32767")
	if got := (allocate.Config{}).APIServerAddress().String(); got != "10.96.0.1" {
		t.Errorf("got %s", got)
	}
	c.apply(allocate.APIServerService, `clusterIP: 10.96.0.1, `+onePort)
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ addresses, ports, want string }{
		{allocate.DefaultAddresses, allocate.DefaultPorts, ""},
		{"10.0.0.0/24, fd00::/108", "30000+10", ""},
		{"10.0.0.1/24", "30000-30001", "10.0.0.0/24?"},
		{"10.0.0.0/30", "30000-30001", "at least 8 addresses"},
		{"nonsense", "30000-30001", "--service-cluster-ip-range"},
		{"10.0.0.0/24,10.1.0.0/24", "30000-30001", "one of IPv4 and one of IPv6"},
		{"10.0.0.0/24", "a-b", "--service-node-port-range"},
		{"10.0.0.0/24", "0-10", "--service-node-port-range"},
		{"10.0.0.0/24", "", "--service-node-port-range"},
	} {
		_, err := allocate.Ranges{Addresses: c.addresses, Ports: c.ports}.Parse()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q %q: %v, want %q", c.addresses, c.ports, err, c.want)
		}
	}
}
