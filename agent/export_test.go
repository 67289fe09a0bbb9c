package agent

import "k8s.io/apimachinery/pkg/types"

// Remembered returns the numbers of records about a pod's containers and sandboxes in memory: owners and executed
// preStop hooks.
func (a *Agent) Remembered(uid types.UID) (owned, hooked int) {
	if p := a.pods.get(uid); p != nil {
		hooked = p.Remembered()
	}
	return a.owners.Count(uid), hooked
}
