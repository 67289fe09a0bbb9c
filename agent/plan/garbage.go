package plan

import "monopod/agent/status"

// Garbage is what of a living pod nobody wants any more: dead containers but
// the last keep ones of each name that are not the present instance, and dead
// sandboxes without containers but the newest.
func Garbage(seen *status.Observed, keep int) (containers []*status.Container, sandboxes []string) {
	left := map[string]int{} // containers by sandbox
	for _, name := range names(seen) {
		for i, c := range seen.Named(name) {
			if i > keep && c.State == status.Exited {
				containers = append(containers, c)
				continue
			}
			left[c.SandboxID]++
		}
	}
	newest := seen.Sandbox()
	for i := range seen.Sandboxes {
		s := &seen.Sandboxes[i]
		if s != newest && !s.Ready && left[s.ID] == 0 {
			sandboxes = append(sandboxes, s.ID)
		}
	}
	return containers, sandboxes
}

func names(seen *status.Observed) []string {
	var out []string
	known := map[string]bool{}
	for i := range seen.Containers {
		if n := seen.Containers[i].Name; !known[n] {
			known[n] = true
			out = append(out, n)
		}
	}
	return out
}
