package agent

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"monopod/agent/host"
	"monopod/agent/images/gc"
	"monopod/agent/images/pull"
	"monopod/agent/logs"
	"monopod/agent/network/ingress"
	"monopod/agent/node/shutdown"
	"monopod/agent/podapi/security"
	"monopod/agent/podapi/spec"
	"monopod/agent/pressure/eviction"
	"monopod/agent/resources/cgroup"
	"monopod/agent/resources/cpumanager"
	"monopod/agent/resources/memorymanager"
	"monopod/agent/resources/reserve"
	"monopod/agent/resources/topology"
	"monopod/agent/runtime/containerd"
)

// Settings are the flags of a node.
type Settings struct {
	NodeName   string // empty: the hostname
	Runtime    string // "containerd", "fake" or NoRuntime
	Containerd containerd.Options
	Cgroups    cgroup.Options
	Pulls      pull.Limits
	Verify     pull.Verification
	Garbage    gc.Policy
	Logs       logs.Rotation
	MaxPods    int
	Network    PodNetwork
	Cluster    spec.Cluster
	Security   security.Policy
	Kubelet    Kubelet
	Eviction   eviction.Options
	Reserve    reserve.Config
	CPUs       cpumanager.Config
	Memory     memorymanager.Config
	Topology   topology.Config
	Shutdown   shutdown.Periods
	Ingress    ingress.Config

	evictions eviction.Policy // part of Eviction, set by Complete
}

// NoRuntime is the runtime of a process without a node.
const NoRuntime = "none"

// LoopbackPods returns the loopback range of the addresses of pods on the fake runtime; zero for other runtimes.
func (s *Settings) LoopbackPods() netip.Prefix {
	if s.Runtime != "fake" {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{127, 88}), 16)
}

// ServingNames returns the machine's addresses, which the server's certificate must contain if the kubelet's API has a
// port of its own.
func (s *Settings) ServingNames() (names []string) {
	if s.Kubelet.Listen == "" {
		return nil
	}
	for _, ip := range host.IPs([]corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}) {
		names = append(names, ip.String())
	}
	return names
}

// Off reports whether the settings disable a controller; ours is false if the controller does not run with the node.
func (s *Settings) Off(controller string) (off, ours bool) {
	return !s.Ingress.On(), controller == ingress.Name
}

// UsualPorts reports whether the ingress controller has ports 80 and 443 unless its flags say otherwise: the pods are
// real, and the API has a lasting address, unlike that of a test.
func (s *Settings) UsualPorts(listen string) bool {
	_, port, err := net.SplitHostPort(listen)
	return s.Runtime == "containerd" && os.Geteuid() == 0 && err == nil && port != "0"
}

// Flags adds the flags to groups, by subject.
func (s *Settings) Flags(group func(subject string) *pflag.FlagSet) {
	group("general").StringVar(&s.NodeName, "node-name", "", "Name of the node (default the hostname)")
	runtime := group("container runtime")
	runtime.StringVar(&s.Runtime, "runtime", "containerd",
		"Container runtime: containerd; fake, which runs pods in memory; or none, for an API server without a node.")
	s.Containerd.Flags(runtime)
	s.Cgroups.Flags(runtime)
	images := group("image and container")
	s.Pulls.Flags(images)
	s.Verify.Flags(images)
	s.Garbage.Flags(images)
	s.Logs.Flags(images)
	pods := group("pod")
	pods.IntVar(&s.MaxPods, "max-pods", 110, "Maximum number of pods on the node.")
	s.Network.Flags(pods)
	s.Cluster.Flags(pods)
	s.Security.Flags(pods)
	s.Kubelet.Flags(group("kubelet server"))
	s.Eviction.Flags(group("eviction"))
	s.Reserve.Flags(group("node allocatable"))
	managers := group("CPU, memory and topology manager")
	s.CPUs.Flags(managers)
	s.Memory.Flags(managers)
	s.Topology.Flags(managers)
	s.Shutdown.Flags(group("node shutdown"))
	s.Ingress.Flags(group("ingress"))
}

// Complete validates the flags and sets defaults.
func (s *Settings) Complete() error {
	if s.NodeName == "" {
		hostname, err := os.Hostname()
		if hostname == "(none)" { // the kernel's, if no program of the machine has set it
			hostname = "localhost"
		}
		if err != nil {
			return fmt.Errorf("--node-name: cannot read the hostname: %w", err)
		}
		s.NodeName = strings.ToLower(hostname)
	}
	if problems := validation.IsDNS1123Subdomain(s.NodeName); len(problems) > 0 {
		return fmt.Errorf("--node-name: %q: %s", s.NodeName, strings.Join(problems, "; "))
	}
	if s.Runtime != "containerd" && s.Runtime != "fake" && s.Runtime != NoRuntime {
		return fmt.Errorf("--runtime must be containerd, fake or none, got %q", s.Runtime)
	}
	if s.MaxPods < 1 {
		return fmt.Errorf("--max-pods must be positive, got %d", s.MaxPods)
	}
	s.Ingress.Complete(false) // unless serve has completed it
	var err error
	s.evictions, err = s.Eviction.Policy()
	return errors.Join(s.Containerd.Check(), s.Network.complete(s.MaxPods), s.Kubelet.Check(), s.Garbage.Check(),
		s.Logs.Check(),
		s.Pulls.Check(), s.Verify.Check(), s.Cluster.Check(), s.Reserve.Check(), s.Cgroups.Check(),
		s.Security.Check(), s.CPUs.Check(s.Topology.Policy), s.Memory.Check(), s.Topology.Check(), s.Shutdown.CheckServe(),
		s.Ingress.Check(), err)
}

// Possible returns why the runtime can never work on this machine.
func (s *Settings) Possible() error {
	if s.Runtime != "containerd" {
		return nil
	}
	return s.Containerd.Possible()
}

// SetUp does what pods need and a bare machine leaves to its programs.
func (s *Settings) SetUp() error {
	if s.Runtime != "containerd" {
		return nil
	}
	return containerd.SetUp()
}

// Kubelet configures the kubelet's API.
type Kubelet struct {
	Listen    string // host:port of HTTPS; empty: only through the API server's proxy
	Debugging bool   // including logs, streams, commands and profiles
	Terminal  bool   // shells on this machine for admins
}

// Flags adds the flags. --enable-debugging-handlers is kubelet's.
func (k *Kubelet) Flags(f *pflag.FlagSet) {
	f.StringVar(&k.Listen, "kubelet-listen", "",
		"HTTPS address of the kubelet's API (metrics, stats, pods, logs), for Prometheus, metrics-server and other servers "+
			"on the same etcd, for example 0.0.0.0:10250. Empty: only through this API server, at nodes/NAME/proxy.")
	f.BoolVar(&k.Debugging, "enable-debugging-handlers", true,
		"Serve logs, exec, attach, run, port-forward, configz and profiles of the node, in addition to its pods and metrics.")
	f.BoolVar(&k.Terminal, "node-terminal", false,
		"Serve shells on this machine, as the user of this process, to members of system:masters: on the node's page, and at "+
			"nodes/NAME/proxy/monopod/terminal.")
}

// Check returns an error for invalid values.
func (k *Kubelet) Check() error {
	if k.Listen == "" {
		return nil
	}
	if _, _, err := net.SplitHostPort(k.Listen); err != nil {
		return fmt.Errorf("--kubelet-listen: %w", err)
	}
	return nil
}
