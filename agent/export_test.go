package agent

import "k8s.io/apimachinery/pkg/types"

// Remembered returns the containers and sandboxes that a pod keeps in memory: their owners, and whether their
// preStop hooks ran.
func (a *Agent) Remembered(uid types.UID) (owned, hooked int) {
	if p := a.pods.get(uid); p != nil {
		hooked = p.Remembered()
	}
	return a.owners.Count(uid), hooked
}
