package host_test

import (
	"testing"

	"monopod/agent/host"
)

func TestInfoAndCapacity(t *testing.T) {
	t.Parallel()
	info, err := host.Info()
	if err != nil || info.KernelVersion == "" || info.BootID == "" || info.OSImage == "" || info.Architecture == "" {
		t.Errorf("node info %+v, error %v", info, err)
	}
	capacity, err := host.Capacity(t.TempDir()+"/not/there/yet", 7)
	if err != nil || capacity.Cpu().Value() < 1 || capacity.Memory().Value() < 1<<20 ||
		capacity.StorageEphemeral().Value() < 1<<20 || capacity.Pods().Value() != 7 {
		t.Errorf("capacity %v, error %v", capacity, err)
	}
	for name, ask := range map[string]func() (host.Amount, error){
		"memory": host.Memory, "pids": host.PIDs,
		"disk": func() (host.Amount, error) { return host.Disk("/") },
	} {
		if a, err := ask(); err != nil || a.Total <= 0 || a.Free <= 0 || a.Free > a.Total {
			t.Errorf("%s: %+v %v", name, a, err)
		}
	}
	if !host.IPs(nil)[0].IsValid() {
		t.Error("the machine has no valid IP address")
	}
}
