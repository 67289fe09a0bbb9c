package agent

import "k8s.io/apimachinery/pkg/types"

// Records returns the numbers of records about a pod's containers and sandboxes in memory: owners and executed
// preStop hooks.
func (a *Agent) Records(uid types.UID) (owned, hooked int) {
	if p := a.pods.get(uid); p != nil {
		hooked = p.ExecutedHooks()
	}
	return a.owners.Count(uid), hooked
}
