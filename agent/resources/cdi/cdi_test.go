package cdi

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/podapi/spec"
)

func TestExpand(t *testing.T) {
	t.Parallel()
	system, own := t.TempDir(), t.TempDir()
	for path, text := range map[string]string{
		filepath.Join(system, "a.json"): `{"cdiVersion": "0.6.0", "kind": "example.com/gpu", "containerEdits": {"env": ["ALL=1"]}, "devices": [
			{"name": "0", "containerEdits": {"env": ["GPU=0", "EMPTY"], "deviceNodes": [{"path": "/dev/gpu0"}, {"path": "/dev/ctl", "hostPath": "/dev/null", "permissions": "r"}]}},
			{"name": "1", "containerEdits": {"mounts": [{"hostPath": "/lib/x", "containerPath": "/x", "options": ["ro", "nosuid", "rbind", "rslave"]}]}},
			{"name": "2", "containerEdits": {"env": ["OLD=1"]}}]}`,
		filepath.Join(own, "b.yaml"): `
kind: example.com/gpu
devices:
- {name: "2", containerEdits: {env: ["NEW=1"]}}
- {name: hooked, containerEdits: {hooks: [{hookName: createContainer, path: /bin/true}]}}
- {name: tmp, containerEdits: {mounts: [{containerPath: /x, type: tmpfs}]}}`,
		filepath.Join(own, "broken.json"): `{`,
		filepath.Join(own, "other.txt"):   `kind: example.com/other`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for names, want := range map[string]string{
		"":                  "[] [] [] 0",
		"example.com/gpu=0": "[GPU=0 EMPTY= ALL=1] [/dev/gpu0:/dev/gpu0:rwm /dev/null:/dev/ctl:r] [] 0",
		"example.com/gpu=0 example.com/gpu=1": "[GPU=0 EMPTY= ALL=1] [/dev/gpu0:/dev/gpu0:rwm /dev/null:/dev/ctl:r] " +
			"[/lib/x:/x:true:PROPAGATION_HOST_TO_CONTAINER] 0",
		"example.com/gpu=2":      "[NEW=1] [] [] 0",
		"example.com/gpu=9":      `unresolvable CDI device "example.com/gpu=9"`,
		"example.com/nic=0":      `unresolvable CDI device "example.com/nic=0"`,
		"gpu0":                   "not a qualified name",
		"example.com/gpu=hooked": "needs hooks, which only containerd 2.0 and later can add",
		"example.com/gpu=tmp":    "mounts tmpfs",
	} {
		var a spec.Allotment
		for _, name := range strings.Fields(names) {
			a.CDI = append(a.CDI, &cri.CDIDevice{Name: name})
		}
		got := ""
		if err := Expand([]string{filepath.Join(system, "missing"), system, own}, &a); err != nil {
			got = err.Error()
		} else {
			var envs, devices, mounts []string
			for _, v := range a.Envs {
				envs = append(envs, v.Name+"="+v.Value)
			}
			for _, d := range a.Devices {
				devices = append(devices, d.HostPath+":"+d.ContainerPath+":"+d.Permissions)
			}
			for _, m := range a.Mounts {
				mounts = append(mounts, fmt.Sprint(m.HostPath, ":", m.ContainerPath, ":", m.Readonly, ":", m.Propagation))
			}
			got = fmt.Sprint(envs, devices, mounts, len(a.CDI))
			want = strings.NewReplacer("] [", "][", "] 0", "] 0").Replace(want)
			got = strings.ReplaceAll(got, "] [", "][")
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", names, got, want)
		}
	}
}
