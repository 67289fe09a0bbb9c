package agent

import "k8s.io/apimachinery/pkg/types"

// Remembered are the containers and sandboxes of which something is remembered for
// a pod: whose they are, and whether their preStop hook ran.
func (a *Agent) Remembered(uid types.UID) (owned, hooked int) {
	if p := a.pods.get(uid); p != nil {
		hooked = p.Remembered()
	}
	return a.owners.Count(uid), hooked
}
