package spec_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/podapi/env"
	"monopod/agent/podapi/spec"
)

func pod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u1", Labels: map[string]string{"app": "web"},
			Annotations: map[string]string{"a": "b"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "web:1"}}},
	}
}

func TestSandbox(t *testing.T) {
	t.Parallel()
	p := pod()
	p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80},
		{ContainerPort: 53, HostPort: 5353, Protocol: corev1.ProtocolUDP, HostIP: "127.0.0.1"}}
	got := spec.Sandbox(p, spec.SandboxOptions{Attempt: 2, Instance: "i", CgroupParent: "/x", LogDir: "/logs"})
	if got.Hostname != "web" || got.Metadata.Attempt != 2 || got.Metadata.Uid != "u1" || got.Linux.CgroupParent != "/x" ||
		got.LogDirectory != "/logs" {
		t.Errorf("config of the sandbox: %+v", got)
	}
	for k, v := range map[string]string{"io.kubernetes.pod.name": "web", "io.kubernetes.pod.namespace": "default",
		"io.kubernetes.pod.uid": "u1", "app": "web", spec.LabelInstance: "i"} {
		if got.Labels[k] != v {
			t.Errorf("label %s=%q", k, got.Labels[k])
		}
	}
	if len(got.PortMappings) != 1 || got.PortMappings[0].HostPort != 5353 ||
		got.PortMappings[0].Protocol != cri.Protocol_UDP {
		t.Errorf("ports: %v", got.PortMappings)
	}
	if p.Labels[spec.LabelInstance] != "" {
		t.Error("Sandbox changed the labels of the pod")
	}
	p.Spec.HostNetwork, p.Spec.HostPID = true, true
	got = spec.Sandbox(p, spec.SandboxOptions{})
	ns := got.Linux.SecurityContext.NamespaceOptions
	if got.Hostname != "" || len(got.PortMappings) != 0 || ns.Network != cri.NamespaceMode_NODE ||
		ns.Pid != cri.NamespaceMode_NODE || ns.Ipc != cri.NamespaceMode_POD {
		t.Errorf("config with host namespaces: %+v", got)
	}
	p = pod()
	p.Name = strings.Repeat("a", 62) + "-b"
	if got := spec.Sandbox(p, spec.SandboxOptions{}).Hostname; got != strings.Repeat("a", 62) {
		t.Errorf("hostname %q", got)
	}
}

func TestContainer(t *testing.T) {
	t.Parallel()
	p := pod()
	c := &p.Spec.Containers[0]
	c.TerminationMessagePolicy = corev1.TerminationMessageReadFile
	got := spec.Container(p, c,
		spec.ContainerOptions{Attempt: 3, ImageRef: "sha256:1", Env: []env.Var{{Name: "A", Value: "1"}},
			Command: []string{"/x", "1"}, Args: []string{"$(B)"}, MessageHostPath: "/m"})
	if !slices.Equal(got.Command, []string{"/x", "1"}) || !slices.Equal(got.Args, []string{"$(B)"}) ||
		got.LogPath != "c/3.log" {
		t.Errorf("config of the container: %+v", got)
	}
	if got.Labels["io.kubernetes.container.name"] != "c" ||
		got.Annotations["io.kubernetes.container.restartCount"] != "3" {
		t.Errorf("labels %v, annotations %v", got.Labels, got.Annotations)
	}
	if back := spec.AnnotationsOf(got.Annotations); back.Hash != spec.Hash(c) || back.MessageHostPath != "/m" ||
		back.MessagePolicy != "File" {
		t.Errorf("parsed annotations: %+v", back)
	}
	if id := spec.IdentityOf(got.Labels); id != (spec.Identity{Name: "web", Namespace: "default", UID: "u1"}) {
		t.Errorf("identity: %+v", id)
	}
	if got.Linux.SecurityContext.Seccomp.ProfileType != cri.SecurityProfile_Unconfined ||
		len(got.Linux.SecurityContext.MaskedPaths) == 0 {
		t.Errorf("security: %+v", got.Linux.SecurityContext)
	}
}

func TestResources(t *testing.T) {
	t.Parallel()
	const capacity = 1000 << 20
	for name, c := range map[string]struct {
		cpuRequest, cpuLimit, memoryRequest, memoryLimit string
		priority                                         *int32
		shares, quota, memory, oom                       int64
	}{
		"nothing":    {shares: 2, oom: 1000},
		"cpu":        {cpuRequest: "500m", cpuLimit: "1500m", shares: 512, quota: 150000, oom: 999},
		"limit only": {cpuLimit: "250m", shares: 256, quota: 25000, oom: 999},
		"tiny":       {cpuRequest: "1m", cpuLimit: "1m", shares: 2, quota: 1000, oom: 999},
		"memory":     {memoryRequest: "250Mi", memoryLimit: "500Mi", shares: 2, memory: 500 << 20, oom: 750},
		"most":       {memoryRequest: "1000Mi", shares: 2, oom: 2},
		"guaranteed": {cpuRequest: "1", cpuLimit: "1", memoryRequest: "1Mi", memoryLimit: "1Mi", shares: 1024,
			quota: 100000, memory: 1 << 20, oom: -997},
		"node-critcal": {priority: new(int32(2000001000)), shares: 2, oom: -997},
	} {
		p := pod()
		p.Spec.Priority = c.priority
		set := func(list *corev1.ResourceList, name corev1.ResourceName, s string) {
			if s != "" {
				if *list == nil {
					*list = corev1.ResourceList{}
				}
				(*list)[name] = resource.MustParse(s)
			}
		}
		r := &p.Spec.Containers[0].Resources
		set(&r.Requests, corev1.ResourceCPU, c.cpuRequest)
		set(&r.Requests, corev1.ResourceMemory, c.memoryRequest)
		set(&r.Limits, corev1.ResourceCPU, c.cpuLimit)
		set(&r.Limits, corev1.ResourceMemory, c.memoryLimit)
		got := spec.Resources(p, &p.Spec.Containers[0], spec.Memory{Capacity: capacity})
		if got.CpuShares != c.shares || got.CpuQuota != c.quota || got.MemoryLimitInBytes != c.memory ||
			got.OomScoreAdj != c.oom {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestMemoryFiles checks limits of swap and memory protection, with the values of kubelet.
func TestMemoryFiles(t *testing.T) {
	t.Parallel()
	type files = map[string]string
	yes := func() bool { return true }
	all := spec.Memory{Capacity: 1000 << 20, Swap: 500 << 20, Protect: true, LimitsSwap: yes}
	for name, c := range map[string]struct {
		request, limit string
		priority       int32
		memory         spec.Memory
		want           files
	}{
		"burstable":        {"100Mi", "200Mi", 0, all, files{"memory.swap.max": "52428800", "memory.low": "104857600"}},
		"no limit":         {"100Mi", "", 0, all, files{"memory.swap.max": "52428800", "memory.low": "104857600"}},
		"request is limit": {"200Mi", "200Mi", 0, all, files{"memory.swap.max": "0", "memory.low": "209715200"}},
		"critical":         {"100Mi", "200Mi", 2_000_000_000, all, files{"memory.swap.max": "0", "memory.low": "104857600"}},
		"best effort":      {"", "", 0, all, files{"memory.swap.max": "0", "memory.low": "0"}},
		"no swap":          {"100Mi", "", 0, spec.Memory{Capacity: 1, LimitsSwap: yes}, files{"memory.swap.max": "0"}},
		"cgroup v1":        {"100Mi", "", 0, spec.Memory{Capacity: 1}, files{}},
	} {
		p := pod()
		p.Spec.Priority = &c.priority
		r := &p.Spec.Containers[0].Resources
		if c.request != "" {
			r.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(c.request)}
		}
		if c.limit != "" {
			r.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(c.limit)}
		}
		if got := spec.Resources(p, &p.Spec.Containers[0], c.memory).Unified; !maps.Equal(got, c.want) {
			t.Errorf("%s: %v", name, got)
		}
	}
	p := pod()
	p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Mi")}}
	p.Spec.Containers[0].Resources.Limits = p.Spec.Containers[0].Resources.Requests
	want := files{"memory.swap.max": "0", "memory.min": "1048576"}
	if got := spec.Resources(p, &p.Spec.Containers[0], all).Unified; !maps.Equal(got, want) {
		t.Errorf("guaranteed: %v", got)
	}
}

// TestOOMScores checks, with the values of kubelet, that containers share memory that only the Burstable pod requests,
// and that a sidecar is not killed before other containers.
func TestOOMScores(t *testing.T) {
	t.Parallel()
	memory := func(s string) corev1.ResourceRequirements {
		if s == "" {
			return corev1.ResourceRequirements{}
		}
		return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(s)}}
	}
	for name, c := range map[string]struct {
		pod, sidecar, first, second string
		want                        [3]int64 // scores of the sidecar and the two containers
	}{
		"only the pod":               {pod: "300Mi", want: [3]int64{900, 900, 900}},
		"pod and containers":         {pod: "600Mi", first: "200Mi", second: "100Mi", want: [3]int64{800, 700, 800}},
		"pod equals containers":      {pod: "300Mi", first: "200Mi", second: "100Mi", want: [3]int64{900, 800, 900}},
		"only containers":            {first: "200Mi", second: "100Mi", want: [3]int64{900, 800, 900}},
		"container without request":  {first: "200Mi", want: [3]int64{999, 800, 999}},
		"sidecar with large request": {sidecar: "400Mi", first: "200Mi", second: "100Mi", want: [3]int64{600, 800, 900}},
	} {
		p := pod()
		if c.pod != "" {
			p.Spec.Resources = new(memory(c.pod))
		}
		p.Spec.InitContainers = []corev1.Container{
			{Name: "s", RestartPolicy: new(corev1.ContainerRestartPolicyAlways), Resources: memory(c.sidecar)},
		}
		p.Spec.Containers = []corev1.Container{
			{Name: "c", Resources: memory(c.first)},
			{Name: "d", Resources: memory(c.second)},
		}
		var got [3]int64
		for i, of := range []*corev1.Container{&p.Spec.InitContainers[0], &p.Spec.Containers[0], &p.Spec.Containers[1]} {
			got[i] = spec.Resources(p, of, spec.Memory{Capacity: 1000 << 20}).OomScoreAdj
		}
		if got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestLimitsOfPod checks that a container without limits has the limits of its pod, and shares for its CPU limit, as
// with kubelet.
func TestLimitsOfPod(t *testing.T) {
	t.Parallel()
	p := pod()
	p.Spec.Resources = &corev1.ResourceRequirements{
		Limits: corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("2"),
			corev1.ResourceMemory: resource.MustParse("1Gi"),
		},
	}
	if got := spec.Resources(p, &p.Spec.Containers[0], spec.Memory{}); got.CpuQuota != 200000 || got.CpuShares != 2048 ||
		got.MemoryLimitInBytes != 1<<30 {
		t.Errorf("container without limits: %v", got)
	}
	p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	if got := spec.Resources(p, &p.Spec.Containers[0], spec.Memory{}); got.CpuQuota != 100000 || got.CpuShares != 1024 ||
		got.MemoryLimitInBytes != 1<<30 {
		t.Errorf("container with a CPU limit: %v", got)
	}
}

func TestSecurity(t *testing.T) {
	t.Parallel()
	p := pod()
	p.Spec.SecurityContext = &corev1.PodSecurityContext{
		RunAsUser: new(int64(1)), RunAsGroup: new(int64(2)), FSGroup: new(int64(3)), SupplementalGroups: []int64{4},
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	c := &p.Spec.Containers[0]
	c.SecurityContext = &corev1.SecurityContext{
		RunAsUser: new(int64(9)), ReadOnlyRootFilesystem: new(true), AllowPrivilegeEscalation: new(false),
		Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN"}, Drop: []corev1.Capability{"ALL"}},
	}
	sc := spec.Container(p, c, spec.ContainerOptions{}).Linux.SecurityContext
	if sc.RunAsUser.Value != 9 || sc.RunAsGroup.Value != 2 || !slices.Equal(sc.SupplementalGroups, []int64{3, 4}) ||
		!sc.ReadonlyRootfs ||
		!sc.NoNewPrivs {
		t.Errorf("security context: %+v", sc)
	}
	if sc.Seccomp.ProfileType != cri.SecurityProfile_RuntimeDefault || sc.Capabilities.AddCapabilities[0] != "NET_ADMIN" ||
		sc.Capabilities.DropCapabilities[0] != "ALL" {
		t.Errorf("seccomp and capabilities: %+v", sc)
	}
	c.SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
	sc = spec.Container(p, c, spec.ContainerOptions{}).Linux.SecurityContext
	if !sc.Privileged || sc.Seccomp.ProfileType != cri.SecurityProfile_Unconfined || sc.MaskedPaths != nil {
		t.Errorf("privileged: %+v", sc)
	}
	c.SecurityContext = &corev1.SecurityContext{
		SeccompProfile: &corev1.SeccompProfile{
			Type:             corev1.SeccompProfileTypeLocalhost,
			LocalhostProfile: new("../../etc/x.json"),
		},
	}
	if sc = spec.Container(p, c,
		spec.ContainerOptions{SeccompDir: "/data/seccomp"}).Linux.SecurityContext; sc.Seccomp.LocalhostRef != "/data/seccomp/etc/x.json" {
		t.Errorf("seccomp: %+v", sc.Seccomp)
	}
}

func TestDNS(t *testing.T) {
	t.Parallel()
	host := spec.ParseResolv("# c\nnameserver 1.1.1.1\nsearch a.example b.example\noptions ndots:2 rotate\n")
	cluster := spec.Cluster{DNS: []string{"10.0.0.10"}, Domain: "cluster.local"}
	for name, c := range map[string]struct {
		policy  corev1.DNSPolicy
		cluster spec.Cluster
		config  *corev1.PodDNSConfig
		want    string
	}{
		"default":    {corev1.DNSDefault, cluster, nil, "1.1.1.1|a.example b.example|ndots:2 rotate"},
		"no cluster": {corev1.DNSClusterFirst, spec.Cluster{}, nil, "1.1.1.1|a.example b.example|ndots:2 rotate"},
		"cluster first": {corev1.DNSClusterFirst, cluster, nil,
			"10.0.0.10|default.svc.cluster.local svc.cluster.local cluster.local a.example b.example|ndots:5"},
		"none": {corev1.DNSNone, cluster, &corev1.PodDNSConfig{
			Nameservers: []string{"9.9.9.9"}, Searches: []string{"x"}, Options: []corev1.PodDNSConfigOption{{Name: "edns0"}},
		}, "9.9.9.9|x|edns0"},
		"more": {corev1.DNSDefault, cluster, &corev1.PodDNSConfig{
			Nameservers: []string{"1.1.1.1", "9.9.9.9"}, Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: new("1")}},
		}, "1.1.1.1 9.9.9.9|a.example b.example|rotate ndots:1"},
	} {
		p := pod()
		p.Spec.DNSPolicy, p.Spec.DNSConfig = c.policy, c.config
		got := spec.DNS(p, host, c.cluster)
		line := strings.Join(got.Servers, " ") + "|" + strings.Join(got.Searches, " ") + "|" + strings.Join(got.Options, " ")
		if line != c.want {
			t.Errorf("%s: %s", name, line)
		}
	}
}

// Pods get the upstream servers of a local resolver on loopback, which only the node reaches.
func TestResolversOfTheNode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := spec.Resolvers{File: filepath.Join(dir, "resolv.conf"), Upstream: filepath.Join(dir, "behind")}
	own, host := pod(), pod()
	host.Spec.HostNetwork = true
	for _, c := range []struct{ file, behind, own, host string }{
		{"", "", "", ""},
		{"nameserver 192.0.2.1\n", "nameserver 192.0.2.2\n", "192.0.2.1", "192.0.2.1"},
		{"nameserver 127.0.0.53\noptions edns0 trust-ad\n", "nameserver 192.0.2.2\nnameserver 2001:db8::2\n",
			"192.0.2.2 2001:db8::2", "127.0.0.53"},
		{"nameserver ::1\n", "nameserver 192.0.2.2\n", "192.0.2.2", "::1"},
		{"nameserver 127.0.0.1\nnameserver 192.0.2.1\n", "nameserver 192.0.2.2\n", "127.0.0.1 192.0.2.1",
			"127.0.0.1 192.0.2.1"},
		{"nameserver 127.0.0.53\n", "# no network\n", "127.0.0.53", "127.0.0.53"},
	} {
		for name, text := range map[string]string{r.File: c.file, r.Upstream: c.behind} {
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := strings.Join(r.Of(own).Servers, " "); got != c.own {
			t.Errorf("resolv.conf %q, upstream %q: a pod gets %q, want %q", c.file, c.behind, got, c.own)
		}
		if got := strings.Join(r.Of(host).Servers, " "); got != c.host {
			t.Errorf("resolv.conf %q, upstream %q: a pod on the host network gets %q, want %q", c.file, c.behind, got, c.host)
		}
	}
}

// The file is the same as kubelet's.
func TestHosts(t *testing.T) {
	t.Parallel()
	const (
		own = "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n" +
			"fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n"
		node    = "127.0.0.1 localhost the-node\n"
		ofNode  = "# Kubernetes-managed hosts file (host network).\n" + node
		aliases = "\n# Entries added by HostAliases.\n1.2.3.4\ta\tb\n5.6.7.8\tc\n"
	)
	list := []corev1.HostAlias{{IP: "1.2.3.4", Hostnames: []string{"a", "b"}}, {IP: "5.6.7.8", Hostnames: []string{"c"}}}
	for name, c := range map[string]struct {
		spec corev1.PodSpec
		want string
	}{
		"a pod":        {corev1.PodSpec{}, own + "10.0.0.2\tweb\nfd00::2\tweb\n"},
		"with aliases": {corev1.PodSpec{HostAliases: list}, own + "10.0.0.2\tweb\nfd00::2\tweb\n" + aliases},
		"with a subdomain": {corev1.PodSpec{Subdomain: "s"},
			own + "10.0.0.2\tweb.s.default.svc.c.l\tweb\nfd00::2\tweb.s.default.svc.c.l\tweb\n"},
		"host network":        {corev1.PodSpec{HostNetwork: true, Subdomain: "s"}, ofNode},
		"host network, alias": {corev1.PodSpec{HostNetwork: true, HostAliases: list}, ofNode + aliases},
	} {
		p := pod()
		p.Spec = c.spec
		if got := spec.Hosts(p, []string{"10.0.0.2", "fd00::2"}, "c.l", node); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestHostname(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 62) + "-y"
	for name, c := range map[string]struct {
		spec   corev1.PodSpec
		domain string
		want   string
		hosts  string
	}{
		"pod name":  {corev1.PodSpec{}, "c.l", "web", "web"},
		"hostname":  {corev1.PodSpec{Hostname: "h"}, "c.l", "h", "h"},
		"truncated": {corev1.PodSpec{Hostname: long}, "c.l", long[:62], long[:62]},
		"subdomain": {corev1.PodSpec{Hostname: "h", Subdomain: "s"}, "c.l", "h", "h.s.default.svc.c.l\th"},
		"FQDN": {corev1.PodSpec{Hostname: "h", Subdomain: "s", SetHostnameAsFQDN: new(true)}, "c.l",
			"h.s.default.svc.c.l", "h.s.default.svc.c.l\th"},
		"FQDN, no domain":    {corev1.PodSpec{Hostname: "h", Subdomain: "s", SetHostnameAsFQDN: new(true)}, "", "h", "h"},
		"FQDN, no subdomain": {corev1.PodSpec{SetHostnameAsFQDN: new(true)}, "c.l", "web", "web"},
		"override": {corev1.PodSpec{Hostname: "h", Subdomain: "s", HostnameOverride: new("o.example")}, "c.l",
			"o.example", "o.example"},
		"host network":   {corev1.PodSpec{HostNetwork: true, Hostname: "h"}, "c.l", "", ""},
		"host net, FQDN": {corev1.PodSpec{HostNetwork: true, Subdomain: "s", SetHostnameAsFQDN: new(true)}, "c.l", "", ""},
	} {
		p := pod()
		p.Spec = c.spec
		if got := spec.Sandbox(p, spec.SandboxOptions{Domain: c.domain}).Hostname; got != c.want {
			t.Errorf("%s: hostname %q", name, got)
		}
		if err := spec.CheckHostname(p, c.domain); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if hosts := spec.Hosts(p, []string{"10.0.0.2"}, c.domain, ""); c.hosts != "" &&
			!strings.HasSuffix(hosts, "\n10.0.0.2\t"+c.hosts+"\n") {
			t.Errorf("%s: hosts %q", name, hosts)
		}
	}
	p := pod()
	p.Spec = corev1.PodSpec{Hostname: strings.Repeat("x", 50), Subdomain: "s", SetHostnameAsFQDN: new(true)}
	if err := spec.CheckHostname(p, "c.l"); err == nil || !strings.Contains(err.Error(), "68 characters requested") {
		t.Errorf("FQDN that is too long: %v", err)
	}
}
