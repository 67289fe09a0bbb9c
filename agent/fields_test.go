package agent_test

import (
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/podapi/security"
	"monopod/agent/podapi/spec"
	"monopod/agent/resources/userns"
	"monopod/apiserver/registry"
)

// setting describes the handling of a field that affects the rights of a pod on its node.
type setting struct {
	set func(*corev1.Pod) // sets the field to a value other than the default

	// bad sets the field to a value that the API rejects with an error at the path at; nil: all values are valid.
	bad func(*corev1.Pod)
	at  string

	cri     bool   // the agent passes the field to the runtime
	refused string // part of the rejection by a node that does not support the field
	other   string // what applies the field, if neither the runtime nor admission does
}

func ofPod(set func(*corev1.PodSecurityContext)) func(*corev1.Pod) {
	return func(p *corev1.Pod) { set(p.Spec.SecurityContext) }
}

func ofContainer(set func(*corev1.SecurityContext)) func(*corev1.Pod) {
	return func(p *corev1.Pod) { set(p.Spec.Containers[0].SecurityContext) }
}

func ofSpec(set func(*corev1.PodSpec)) func(*corev1.Pod) {
	return func(p *corev1.Pod) { set(&p.Spec) }
}

func podSettings() map[string]setting {
	type sc = corev1.PodSecurityContext
	return map[string]setting{
		"SELinuxOptions": {set: ofPod(func(s *sc) { s.SELinuxOptions = &corev1.SELinuxOptions{Level: "s0"} }), cri: true},
		"WindowsOptions": {
			set:     ofPod(func(s *sc) { s.WindowsOptions = &corev1.WindowsSecurityContextOptions{} }),
			refused: "WindowsOptionsNotSupported",
		},
		"RunAsUser": {set: ofPod(func(s *sc) { s.RunAsUser = new(int64(1)) }), cri: true,
			bad: ofPod(func(s *sc) { s.RunAsUser = new(int64(-1)) }), at: "spec.securityContext.runAsUser"},
		"RunAsGroup": {set: ofPod(func(s *sc) { s.RunAsGroup = new(int64(1)) }), cri: true,
			bad: ofPod(func(s *sc) { s.RunAsGroup = new(int64(-1)) }), at: "spec.securityContext.runAsGroup"},
		"RunAsNonRoot": {set: ofPod(func(s *sc) { s.RunAsNonRoot = new(true) }), refused: "image will run as root"},
		"SupplementalGroups": {set: ofPod(func(s *sc) { s.SupplementalGroups = []int64{1} }), cri: true,
			bad: ofPod(func(s *sc) { s.SupplementalGroups = []int64{-1} }), at: "spec.securityContext.supplementalGroups[0]"},
		"SupplementalGroupsPolicy": {
			set:     ofPod(func(s *sc) { s.SupplementalGroupsPolicy = new(corev1.SupplementalGroupsPolicyStrict) }),
			cri:     true,
			refused: "SupplementalGroupsPolicyNotSupported",
			bad:     ofPod(func(s *sc) { s.SupplementalGroupsPolicy = new(corev1.SupplementalGroupsPolicy("x")) }),
			at:      "spec.securityContext.supplementalGroupsPolicy",
		},
		"FSGroup": {set: ofPod(func(s *sc) { s.FSGroup = new(int64(1)) }), cri: true,
			bad: ofPod(func(s *sc) { s.FSGroup = new(int64(-1)) }), at: "spec.securityContext.fsGroup"},
		"Sysctls": {
			set:     ofPod(func(s *sc) { s.Sysctls = []corev1.Sysctl{{Name: "net.core.somaxconn", Value: "1"}} }),
			cri:     true,
			refused: "SysctlForbidden",
			bad:     ofPod(func(s *sc) { s.Sysctls = []corev1.Sysctl{{Name: "a b"}} }),
			at:      "spec.securityContext.sysctls[0].name",
		},
		"FSGroupChangePolicy": {
			set:   ofPod(func(s *sc) { s.FSGroupChangePolicy = new(corev1.FSGroupChangeOnRootMismatch) }),
			other: "agent/storage/volume",
			bad:   ofPod(func(s *sc) { s.FSGroupChangePolicy = new(corev1.PodFSGroupChangePolicy("x")) }),
			at:    "spec.securityContext.fsGroupChangePolicy",
		},
		"SeccompProfile": {
			set: ofPod(func(s *sc) { s.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault} }),
			cri: true,
			bad: ofPod(func(s *sc) { s.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost} }),
			at:  "spec.securityContext.seccompProfile.localhostProfile",
		},
		"AppArmorProfile": {set: ofPod(func(s *sc) {
			s.AppArmorProfile = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
		}), cri: true, refused: "AppArmor is not enabled on the host",
			bad: ofPod(func(s *sc) { s.AppArmorProfile = &corev1.AppArmorProfile{Type: "x"} }),
			at:  "spec.securityContext.appArmorProfile.type"},
		"SELinuxChangePolicy": {
			set:   ofPod(func(s *sc) { s.SELinuxChangePolicy = new(corev1.SELinuxChangePolicyRecursive) }),
			other: "nobody: labels are put on files recursively, by the runtime",
			bad:   ofPod(func(s *sc) { s.SELinuxChangePolicy = new(corev1.PodSELinuxChangePolicy("x")) }),
			at:    "spec.securityContext.seLinuxChangePolicy",
		},
	}
}

func containerSettings() map[string]setting {
	type sc = corev1.SecurityContext
	return map[string]setting{
		"Capabilities": {
			set: ofContainer(func(s *sc) { s.Capabilities = &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN"}} }),
			cri: true,
			bad: ofContainer(func(s *sc) {
				s.AllowPrivilegeEscalation, s.Capabilities = new(false), &corev1.Capabilities{
					Add: []corev1.Capability{"CAP_SYS_ADMIN"},
				}
			}),
			at: "spec.containers[0].securityContext",
		},
		"Privileged": {set: ofContainer(func(s *sc) { s.Privileged = new(true) }), cri: true},
		"SELinuxOptions": {
			set: ofContainer(func(s *sc) { s.SELinuxOptions = &corev1.SELinuxOptions{Level: "s0"} }),
			cri: true,
		},
		"WindowsOptions": {
			set:     ofContainer(func(s *sc) { s.WindowsOptions = &corev1.WindowsSecurityContextOptions{} }),
			refused: "WindowsOptionsNotSupported",
		},
		"RunAsUser": {set: ofContainer(func(s *sc) { s.RunAsUser = new(int64(1)) }), cri: true,
			bad: ofContainer(func(s *sc) { s.RunAsUser = new(int64(-1)) }), at: "spec.containers[0].securityContext.runAsUser"},
		"RunAsGroup": {set: ofContainer(func(s *sc) { s.RunAsGroup = new(int64(1)) }), cri: true,
			bad: ofContainer(func(s *sc) { s.RunAsGroup = new(int64(-1)) }),
			at:  "spec.containers[0].securityContext.runAsGroup"},
		"RunAsNonRoot": {
			set:     ofContainer(func(s *sc) { s.RunAsNonRoot = new(true) }),
			refused: "image will run as root",
		},
		"ReadOnlyRootFilesystem": {set: ofContainer(func(s *sc) { s.ReadOnlyRootFilesystem = new(true) }), cri: true},
		"AllowPrivilegeEscalation": {set: ofContainer(func(s *sc) { s.AllowPrivilegeEscalation = new(false) }), cri: true,
			bad: ofContainer(func(s *sc) { s.AllowPrivilegeEscalation, s.Privileged = new(false), new(true) }),
			at:  "spec.containers[0].securityContext"},
		"ProcMount": {set: func(p *corev1.Pod) {
			p.Spec.HostUsers, p.Spec.Containers[0].SecurityContext.ProcMount = new(false), new(corev1.UnmaskedProcMount)
		}, cri: true, refused: "does not support user namespaces",
			bad: ofContainer(func(s *sc) { s.ProcMount = new(corev1.UnmaskedProcMount) }),
			at:  "spec.containers[0].securityContext.procMount"},
		"SeccompProfile": {set: ofContainer(func(s *sc) {
			s.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: new("x.json")}
		}), cri: true, refused: `cannot load seccomp profile "x.json"`,
			bad: ofContainer(func(s *sc) { s.SeccompProfile = &corev1.SeccompProfile{Type: "x"} }),
			at:  "spec.containers[0].securityContext.seccompProfile.type"},
		"AppArmorProfile": {set: ofContainer(func(s *sc) {
			s.AppArmorProfile = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
		}), cri: true, refused: "AppArmor is not enabled on the host",
			bad: ofContainer(func(s *sc) { s.AppArmorProfile = &corev1.AppArmorProfile{Type: "x"} }),
			at:  "spec.containers[0].securityContext.appArmorProfile.type"},
	}
}

// hostSettings are the fields of PodSpec that share something with the host or isolate the pod from it.
func hostSettings() map[string]setting {
	type ps = corev1.PodSpec
	return map[string]setting{
		"HostNetwork": {set: ofSpec(func(s *ps) { s.HostNetwork = true }), cri: true,
			bad: ofSpec(func(s *ps) { s.HostNetwork, s.HostUsers = true, new(false) }), at: "spec.securityContext.hostNetwork"},
		"HostPID": {set: ofSpec(func(s *ps) { s.HostPID = true }), cri: true,
			bad: ofSpec(func(s *ps) { s.HostPID, s.ShareProcessNamespace = true, new(true) }),
			at:  "spec.securityContext.shareProcessNamespace"},
		"HostIPC": {set: ofSpec(func(s *ps) { s.HostIPC = true }), cri: true,
			bad: ofSpec(func(s *ps) { s.HostIPC, s.HostUsers = true, new(false) }), at: "spec.securityContext.hostIPC"},
		"HostUsers": {
			set:     ofSpec(func(s *ps) { s.HostUsers = new(false) }),
			cri:     true,
			refused: "does not support user namespaces",
		},
		"ShareProcessNamespace": {set: ofSpec(func(s *ps) { s.ShareProcessNamespace = new(true) }), cri: true},
		"HostAliases": {
			set:   ofSpec(func(s *ps) { s.HostAliases = []corev1.HostAlias{{IP: "10.0.0.1", Hostnames: []string{"a"}}} }),
			other: "the pod's /etc/hosts",
			bad:   ofSpec(func(s *ps) { s.HostAliases = []corev1.HostAlias{{IP: "x"}} }),
			at:    "spec.hostAliases[0].ip",
		},
		"Hostname": {set: ofSpec(func(s *ps) { s.Hostname = "other" }), cri: true,
			bad: ofSpec(func(s *ps) { s.Hostname = "a.b" }), at: "spec.hostname"},
		"HostnameOverride": {set: ofSpec(func(s *ps) { s.HostnameOverride = new("other.org") }), cri: true,
			bad: ofSpec(func(s *ps) { s.HostnameOverride = new("a b") }), at: "spec.hostnameOverride"},
		"SetHostnameAsFQDN": {set: ofSpec(func(s *ps) { s.SetHostnameAsFQDN, s.Subdomain = new(true), "sub" }), cri: true},
		"RuntimeClassName": {set: ofSpec(func(s *ps) { s.RuntimeClassName = new("x") }), other: "the handler of the sandbox",
			bad: ofSpec(func(s *ps) { s.RuntimeClassName = new("a b") }), at: "spec.runtimeClassName"},
		"OS": {set: ofSpec(func(s *ps) { s.OS = &corev1.PodOS{Name: corev1.Windows} }), refused: "PodOSNotSupported",
			bad: ofSpec(func(s *ps) { s.OS = &corev1.PodOS{Name: "x"} }), at: "spec.os"},
	}
}

// TestEveryFieldIsDecided fails for a field of a new API version until a table above describes its handling.
func TestEveryFieldIsDecided(t *testing.T) {
	t.Parallel()
	api := registry.New(nil, registry.Resources(), registry.Config{})
	for _, c := range []struct {
		of       reflect.Type
		settings map[string]setting
		all      bool
	}{
		{reflect.TypeFor[corev1.PodSecurityContext](), podSettings(), true},
		{reflect.TypeFor[corev1.SecurityContext](), containerSettings(), true},
		{reflect.TypeFor[corev1.PodSpec](), hostSettings(), false},
	} {
		for f := range fields(c.of) {
			s, known := c.settings[f]
			if !known && (c.all || strings.HasPrefix(f, "Host")) {
				t.Errorf("the tables of settings lack %s.%s", c.of.Name(), f)
			}
			if known {
				t.Run(c.of.Name()+"."+f, func(t *testing.T) { s.check(t, api) })
			}
			delete(c.settings, f)
		}
		for f := range c.settings {
			t.Errorf("%s has no field %s", c.of.Name(), f)
		}
	}
}

func fields(t reflect.Type) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for i := range t.NumField() {
			if !yield(t.Field(i).Name) {
				return
			}
		}
	}
}

// plainPod is a pod whose settings the test changes.
func plainPod() *corev1.Pod {
	p := pod("a")
	p.Spec.SecurityContext, p.Spec.Containers[0].SecurityContext = &corev1.PodSecurityContext{}, &corev1.SecurityContext{}
	return p
}

func (s setting) check(t *testing.T, api *registry.Registry) {
	if s.bad != nil {
		p := plainPod()
		s.bad(p)
		if err := api.Complete(p); err == nil || !strings.Contains(err.Error(), s.at+": ") {
			t.Errorf("the API accepts an invalid value: %v", err)
		}
	}
	p := plainPod()
	s.set(p)
	if err := api.Complete(p); err != nil {
		t.Fatalf("the API rejects a valid value: %v", err)
	}
	if got := refusal(t, p); s.refused == "" && got != "" || !strings.Contains(got, s.refused) {
		t.Errorf("a node without optional features: %q, want %q", got, s.refused)
	}
	if passed := !proto.Equal(sandboxOf(p), sandboxOf(plainPod())) || !proto.Equal(containerOf(p),
		containerOf(plainPod())); passed != s.cri {
		t.Errorf("passed to the runtime: %v, want %v", passed, s.cri)
	}
	if s.refused == "" && !s.cri && s.other == "" {
		t.Error("neither admission nor the runtime handles the field")
	}
}

// refusal returns why a node without optional features rejects a pod whose image runs as root; empty: it admits the
// pod.
func refusal(t *testing.T, p *corev1.Pod) string {
	h := security.Host{Root: t.TempDir()}
	if f := h.Refuse(p, &security.Policy{}); f != nil {
		return f.Reason + ": " + f.Message
	}
	if f := (security.Abilities{}).Check(p, ""); f != nil {
		return f.Reason + ": " + f.Message
	}
	if err := h.Check(p, &p.Spec.Containers[0], &cri.Image{}, h.Root); err != nil {
		return err.Error()
	}
	return ""
}

func sandboxOf(p *corev1.Pod) *cri.PodSandboxConfig {
	return spec.Sandbox(p, spec.SandboxOptions{Domain: "cluster.local", Users: usersOf(p)})
}

// containerOf removes the values that differ between any two specs.
func containerOf(p *corev1.Pod) *cri.ContainerConfig {
	c := spec.Container(p, &p.Spec.Containers[0], spec.ContainerOptions{Users: usersOf(p), SeccompDir: "/seccomp"})
	c.Annotations = nil
	return c
}

func usersOf(p *corev1.Pod) *cri.UserNamespace {
	if security.NeedsUserNamespace(p) {
		return &cri.UserNamespace{Mode: cri.NamespaceMode_POD}
	}
	return userns.Shared()
}
