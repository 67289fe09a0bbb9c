package spec

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/host"
)

// PageName returns the name of huge pages of that size in runtimes and cgroups: 64KB, 2MB, 1GB.
func PageName(size int64) string {
	units := []string{"B", "KB", "MB", "GB", "TB"}
	for size >= 1024 && len(units) > 1 {
		size, units = size/1024, units[1:]
	}
	return strconv.FormatInt(size, 10) + units[0]
}

// HugePages returns the limits of huge pages, for each of the machine's sizes. Without a limit in the spec a container
// gets no huge pages.
func HugePages(c *corev1.Container, sizes []int64) []*cri.HugepageLimit {
	var out []*cri.HugepageLimit
	for _, size := range sizes {
		q := c.Resources.Limits[host.HugePage(size)]
		out = append(out, &cri.HugepageLimit{PageSize: PageName(size), Limit: uint64(max(q.Value(), 0))})
	}
	return out
}
