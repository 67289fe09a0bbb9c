package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// written returns checkpoints that kubelets wrote on machines with GPUs.
func written() []string {
	return []string{
		`{"Data":{"PodDeviceEntries":[{"PodUID":"bf52b2cd-b611-4e79-86b1-280b283185c3","ContainerName":"check",` +
			`"ResourceName":"nvidia.com/gpu","DeviceIDs":{"-1":["tegra"]},` +
			`"AllocResp":"Ch8KFk5WSURJQV9WSVNJQkxFX0RFVklDRVMSBXRlZ3Jh"}],"RegisteredDevices":{"nvidia.com/gpu":["tegra"]}},` +
			`"Checksum":3660592824}`,
		`{"Data":{"PodDeviceEntries":[{"PodUID":"9a15d2b5-c152-46b9-96e0-d57032629e1f","ContainerName":"app",` +
			`"ResourceName":"nvidia.com/gpu","DeviceIDs":{"1":["GPU-9b341c59-f96b-ba85-c137-78c3652fea65",` +
			`"GPU-c1e9f249-b37b-81c2-a8d9-ba5ca0294841"]},` +
			`"AllocResp":"CmsKFk5WSURJQV9WSVNJQkxFX0RFVklDRVMSUUdQVS1jMWU5ZjI0OS1iMzdiLTgxYzItYThkOS1iYTVjYTAyOTQ4NDEsR1BVLTliMzQxYzU5LWY5NmItYmE4NS1jMTM3LTc4YzM2NTJmZWE2NRokCg4vZGV2L252aWRpYWN0bBIOL2Rldi9udmlkaWFjdGwaAnJ3GiYKDy9kZXYvbnZpZGlhLXV2bRIPL2Rldi9udmlkaWEtdXZtGgJydxoyChUvZGV2L252aWRpYS11dm0tdG9vbHMSFS9kZXYvbnZpZGlhLXV2bS10b29scxoCcncaLgoTL2Rldi9udmlkaWEtbW9kZXNldBITL2Rldi9udmlkaWEtbW9kZXNldBoCcncaIAoML2Rldi9udmlkaWExEgwvZGV2L252aWRpYTEaAnJ3GiAKDC9kZXYvbnZpZGlhMhIML2Rldi9udmlkaWEyGgJydw=="}],"RegisteredDevices":{"nvidia.com/gpu":["GPU-77a702db-e37f-3a74-d46d-c5713f66058c","GPU-9b341c59-f96b-ba85-c137-78c3652fea65","GPU-c1e9f249-b37b-81c2-a8d9-ba5ca0294841"]}},"Checksum":2530956716}`,
	}
}

func TestFilesOfKubelet(t *testing.T) {
	t.Parallel()
	for _, text := range written() {
		d, err := Decode([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		again, err := Encode(d)
		if err != nil || string(again) != text {
			t.Errorf("kubelet wrote\n%s\nEncode returned (error %v)\n%s", text, err, again)
		}
	}
}

func TestDamage(t *testing.T) {
	t.Parallel()
	text := written()[0]
	for name, bad := range map[string]string{
		"truncated": text[:len(text)/2], "empty": "", "other device": strings.Replace(text, "tegra", "tegrb", 1),
		"other kind": "[]",
	} {
		if _, err := Decode([]byte(bad)); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestStartOver(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, FileName), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, damage := Read(dir)
	if lost, err := StartOver(dir, damage); err != nil || !errors.Is(lost, ErrDamaged) || !strings.Contains(lost.Error(),
		"no action is needed") {
		t.Errorf("lost %v, error %v", lost, err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, FileName+".damaged")); err != nil || string(b) != "half" {
		t.Errorf("the .damaged file contains %q, error %v", b, err)
	}
	if d, err := Read(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Read after StartOver returned %v, error %v", d, err)
	}
}

func TestWriteLeavesOneFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	want := Data{Registered: map[string][]string{"a.io/b": {"x"}},
		Entries: []PodDevicesEntry{{PodUID: "u", DeviceIDs: DevicesPerNUMA{NoNUMANode: {"x"}}}}}
	b, err := Encode(want)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := Write(dir, b); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Read(dir)
	if err != nil || !cmp.Equal(got, want) {
		t.Errorf("Read: error %v, diff %s", err, cmp.Diff(want, got))
	}
	names, _ := os.ReadDir(dir)
	if len(names) != 1 {
		t.Errorf("the folder contains %v, want one file", names)
	}
	if info, _ := names[0].Info(); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	if err := Write(filepath.Join(dir, "none"), b); err == nil {
		t.Error("Write succeeded without the folder")
	}
}
