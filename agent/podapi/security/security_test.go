package security_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/podapi/security"
)

func pod() *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{SecurityContext: &corev1.PodSecurityContext{}, Containers: []corev1.Container{{
		Name: "main", SecurityContext: &corev1.SecurityContext{},
	}}}}
}

// machine returns a Host with the files.
func machine(t *testing.T, files map[string]string) security.Host {
	t.Helper()
	h := security.Host{Root: t.TempDir()}
	for name, text := range files {
		path := filepath.Join(h.Root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func TestNonRoot(t *testing.T) {
	t.Parallel()
	uid := func(n int64) *cri.Image { return &cri.Image{Uid: &cri.Int64Value{Value: n}} }
	for name, c := range map[string]struct {
		nonRoot bool
		user    *int64
		image   *cri.Image
		want    string // part of the error; empty: none
	}{
		"not required":         {false, nil, uid(0), ""},
		"root image":           {true, nil, uid(0), "image will run as root"},
		"non-root image":       {true, nil, uid(7), ""},
		"image without user":   {true, nil, &cri.Image{}, "image will run as root"},
		"image with user name": {true, nil, &cri.Image{Username: "web"}, "non-numeric user (web)"},
		"pod with root":        {true, new(int64(0)), uid(7), "runAsUser breaks non-root policy"},
		"pod with non-root":    {true, new(int64(7)), uid(0), ""},
	} {
		p := pod()
		p.Spec.SecurityContext.RunAsNonRoot, p.Spec.SecurityContext.RunAsUser = &c.nonRoot, c.user
		err := security.Host{}.Check(p, &p.Spec.Containers[0], c.image, "")
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCapabilities(t *testing.T) {
	t.Parallel()
	for name, ok := range map[corev1.Capability]bool{
		"NET_ADMIN": true, "CAP_NET_ADMIN": true, "net_admin": true, "ALL": true, "BPF": true, "FLY": false, "": false,
	} {
		p := pod()
		p.Spec.Containers[0].SecurityContext.Capabilities = &corev1.Capabilities{Add: []corev1.Capability{name}}
		if err := (security.Host{}).Check(p, &p.Spec.Containers[0], nil, ""); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
	if got := security.Capability("cap_sys_time"); got != "SYS_TIME" {
		t.Error("capability: ", got)
	}
}

func TestSeccompProfileMustExist(t *testing.T) {
	t.Parallel()
	dir := machine(t, map[string]string{"mine/audit.json": "{}"}).Root
	for name, want := range map[string]string{
		"mine/audit.json": "", "mine/none.json": `cannot load seccomp profile "mine/none.json"`, "mine": "is not a file",
	} {
		p := pod()
		p.Spec.SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost,
			LocalhostProfile: &name}
		err := security.Host{}.Check(p, &p.Spec.Containers[0], nil, dir)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSysctls(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sysctl   string
		unsafe   []string
		net, ipc bool
		want     string // part of the rejection; empty: none
	}{
		"safe":              {sysctl: "net.ipv4.tcp_syncookies"},
		"safe with slashes": {sysctl: "net/ipv4/tcp_syncookies"},
		"safe, host's network": {sysctl: "net.ipv4.tcp_syncookies", net: true,
			want: `forbidden sysctl: "net.ipv4.tcp_syncookies" not allowed with host Net enabled`},
		"safe, host's IPC": {sysctl: "kernel.shm_rmid_forced", ipc: true, want: "not allowed with host IPC enabled"},
		"unsafe": {sysctl: "net.core.somaxconn",
			want: `forbidden sysctl: "net.core.somaxconn" not allowlisted`},
		"unsafe, allowed":       {sysctl: "net.core.somaxconn", unsafe: []string{"net.core.somaxconn"}},
		"unsafe, by a pattern":  {sysctl: "net.core.somaxconn", unsafe: []string{"net.*"}},
		"other pattern":         {sysctl: "kernel.msgmax", unsafe: []string{"kernel.shm*", "net.*"}, want: "not allowlisted"},
		"pattern without a dot": {sysctl: "kernel.msgmax", unsafe: []string{"kernel.msg*"}},
		"pattern, host's IPC": {sysctl: "kernel.msgmax", unsafe: []string{"kernel.msg*"}, ipc: true,
			want: "not allowed with host IPC enabled"},
		"not namespaced": {sysctl: "vm.swappiness", unsafe: []string{"net.*"}, want: "not allowlisted"},
	} {
		p := pod()
		p.Spec.HostNetwork, p.Spec.HostIPC = c.net, c.ipc
		p.Spec.SecurityContext.Sysctls = []corev1.Sysctl{{Name: c.sysctl, Value: "1"}}
		policy := security.Policy{UnsafeSysctls: c.unsafe}
		if err := policy.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		f := security.Host{}.Refuse(p, &policy)
		if (f == nil) != (c.want == "") ||
			f != nil && (f.Reason != "SysctlForbidden" || !strings.Contains(f.Message, c.want)) {
			t.Errorf("%s: %v", name, f)
		}
	}
}

func TestSysctlFlag(t *testing.T) {
	t.Parallel()
	for s, ok := range map[string]bool{
		"kernel.sem": true, "net.*": true, "net*": true, "fs.mqueue.*": true, "kernel.shm*": true,
		"net/ipv4/ip_forward": true,
		"vm.swappiness":       false, "kernel.*": false, "*": false, "Net.x": false, "": false, "net.*.x": false,
		strings.Repeat("a", 300): false,
	} {
		p := security.Policy{UnsafeSysctls: []string{s}}
		if err := p.Check(); (err == nil) != ok ||
			err != nil && !strings.HasPrefix(err.Error(), "--allowed-unsafe-sysctls: ") {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestAppArmor(t *testing.T) {
	t.Parallel()
	on := map[string]string{
		"sys/module/apparmor/parameters/enabled":  "Y\n",
		"sys/kernel/security/apparmor/profiles":   "docker-default (enforce)\nmine (complain)\n",
		"sys/kernel/security/apparmor/.something": "",
	}
	local := func(name string) *corev1.AppArmorProfile {
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
	}
	byRuntime := &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
	free := &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	for name, c := range map[string]struct {
		files          map[string]string
		pod, container *corev1.AppArmorProfile
		old            string // value of the annotation; empty: none
		want           string // part of the rejection; empty: none
	}{
		"not requested, not enabled": {},
		"unconfined, not enabled":    {pod: free, container: free},
		"not enabled": {container: byRuntime,
			want: "Cannot enforce AppArmor: AppArmor is not enabled on the host"},
		"not enabled, pod":         {pod: byRuntime, want: "not enabled"},
		"not enabled, annotation":  {old: "runtime/default", want: "not enabled"},
		"container overrides":      {pod: byRuntime, container: free},
		"annotation overrides pod": {pod: byRuntime, old: "unconfined"},
		"disabled": {files: map[string]string{"sys/module/apparmor/parameters/enabled": "N\n"},
			pod: byRuntime, want: "not enabled"},
		"enabled":                 {files: on, pod: byRuntime},
		"loaded":                  {files: on, container: local("mine")},
		"loaded, annotation":      {files: on, old: "localhost/mine"},
		"not loaded":              {files: on, container: local("other"), want: `profile "other" is not loaded`},
		"invalid annotation":      {files: on, old: "strict", want: `invalid AppArmor profile name: "strict"`},
		"annotation without name": {files: on, old: "localhost/", want: "invalid AppArmor profile name"},
		"unreadable profiles": {files: map[string]string{"sys/module/apparmor/parameters/enabled": "Y"},
			container: local("other")},
	} {
		p := pod()
		p.Spec.SecurityContext.AppArmorProfile, p.Spec.Containers[0].SecurityContext.AppArmorProfile = c.pod, c.container
		if c.old != "" {
			p.Annotations = map[string]string{"container.apparmor.security.beta.kubernetes.io/main": c.old}
		}
		h := machine(t, c.files)
		f := h.Refuse(p, &security.Policy{})
		if (f == nil) != (c.want == "") || f != nil && (f.Reason != "AppArmor" || !strings.Contains(f.Message, c.want)) {
			t.Errorf("%s: %v", name, f)
		}
		if err := h.Check(p, &p.Spec.Containers[0], nil, ""); (err == nil) != (c.want == "") {
			t.Errorf("%s: as an ephemeral container: %v", name, err)
		}
	}
}

func TestAbilities(t *testing.T) {
	t.Parallel()
	modern := security.Abilities{
		Handlers: []*cri.RuntimeHandler{{Features: &cri.RuntimeHandlerFeatures{UserNamespaces: true}}, {Name: "kata"}},
		Features: &cri.RuntimeFeatures{SupplementalGroupsPolicy: true},
	}
	own := func(p *corev1.Pod) { p.Spec.HostUsers = new(false) }
	strict := func(p *corev1.Pod) {
		p.Spec.SecurityContext.SupplementalGroupsPolicy = new(corev1.SupplementalGroupsPolicyStrict)
	}
	for name, c := range map[string]struct {
		can     security.Abilities
		ask     func(*corev1.Pod)
		handler string
		want    string
	}{
		"nothing requested":      {ask: func(*corev1.Pod) {}},
		"strict, old runtime":    {ask: strict, want: "SupplementalGroupsPolicyNotSupported"},
		"strict":                 {can: modern, ask: strict},
		"users, old runtime":     {ask: own, want: "UserNamespacesNotSupported"},
		"users":                  {can: modern, ask: own},
		"users, other handler":   {can: modern, ask: own, handler: "kata", want: "UserNamespacesNotSupported"},
		"users, unknown handler": {can: modern, ask: own, handler: "none", want: "UserNamespacesNotSupported"},
		"strict, any handler":    {can: modern, ask: strict, handler: "kata"},
		"merge, old runtime": {ask: func(p *corev1.Pod) {
			p.Spec.SecurityContext.SupplementalGroupsPolicy = new(corev1.SupplementalGroupsPolicyMerge)
		}},
	} {
		p := pod()
		c.ask(p)
		f := c.can.Check(p, c.handler)
		if (f == nil) != (c.want == "") || f != nil && f.Reason != c.want {
			t.Errorf("%s: %v", name, f)
		}
		if f != nil && !security.NeedsFeatures(p) {
			t.Errorf("%s: NeedsFeatures is false, so the agent would not check the runtime", name)
		}
	}
}
