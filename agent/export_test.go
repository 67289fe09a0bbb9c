package agent

import "k8s.io/apimachinery/pkg/types"

// Records returns how many owners and executed preStop hooks the agent has in memory for a pod.
func (a *Agent) Records(uid types.UID) (owned, hooked int) {
	if p := a.pods.get(uid); p != nil {
		hooked = p.ExecutedHooks()
	}
	return a.owners.Count(uid), hooked
}
