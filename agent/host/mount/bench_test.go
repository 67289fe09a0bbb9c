package mount_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"monopod/agent/host/mount"
)

// BenchmarkMounted checks one of many mounts. Before Linux 5.8, that reads the whole mount table.
func BenchmarkMounted(b *testing.B) {
	m, dir := mount.Kernel{}, b.TempDir()
	for i := range 330 { // three mounts for each of 110 pods
		one := fmt.Sprintf("%s/%d", dir, i)
		if err := os.Mkdir(one, 0o755); err != nil {
			b.Fatal(err)
		}
		if err := m.Tmpfs(one, mount.Tmpfs{Mode: 0o755}); err != nil {
			b.Skipf("left out: nothing can be mounted here: %v", err)
		}
		b.Cleanup(func() { _ = m.Unmount(one) })
	}
	b.Run("folder", func(b *testing.B) {
		for b.Loop() {
			if mounted, err := m.Mounted(dir + "/7"); err != nil || !mounted {
				b.Fatal(mounted, err)
			}
		}
	})
	b.Run("table", func(b *testing.B) {
		for b.Loop() {
			table, err := os.ReadFile("/proc/self/mountinfo")
			if err != nil || !strings.Contains(string(table), " "+dir+"/7 ") {
				b.Fatal(err)
			}
		}
	})
}
