package memory

import (
	"os"
	"path/filepath"
	"testing"
)

func TestFreeOfACgroup(t *testing.T) {
	for name, c := range map[string]struct {
		group cgroup
		files map[string]string
		want  uint64
		ok    bool
	}{
		"version 1": {cgroup{},
			map[string]string{"memory.limit_in_bytes": "1000\n", "memory.usage_in_bytes": "700\n",
				"memory.stat": "cache 9\ninactive_file 1\ntotal_inactive_file 200\ntotal_active_file 3\n"}, 500, true},
		"version 2": {cgroup{second: true},
			map[string]string{"memory.max": "1000\n", "memory.current": "700\n",
				"memory.stat": "anon 9\ninactive_file 200\nactive_file 3\n"}, 500, true},
		"no limit": {cgroup{second: true}, map[string]string{"memory.max": "max\n", "memory.current": "700\n"},
			0, false},
		"no limit in version 1": {cgroup{}, map[string]string{"memory.limit_in_bytes": "9223372036854771712\n",
			"memory.usage_in_bytes": "700\n"}, 0, false},
		"above its limit": {cgroup{second: true}, map[string]string{"memory.max": "1000\n", "memory.current": "1100\n",
			"memory.stat": "anon 9\ninactive_file 0\n"}, 0, true},
		"without a memory": {cgroup{}, nil, 0, false},
	} {
		c.group.dir = t.TempDir()
		for file, text := range c.files {
			if err := os.WriteFile(filepath.Join(c.group.dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got, ok := c.group.free(); got != c.want || ok != c.ok {
			t.Errorf("%s: %d free, %v; want %d, %v", name, got, ok, c.want, c.ok)
		}
	}
}

// TestFree: some memory is free, and no more than the limit.
func TestFree(t *testing.T) {
	if free, all := Free(), Limit(); free == 0 || free > all {
		t.Errorf("%d bytes are free of %d", free, all)
	}
}
