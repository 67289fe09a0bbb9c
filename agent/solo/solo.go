// Package solo remembers which pod has what only one pod may have at a time.
package solo

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Claims says which pod has each claim that is for one pod. Its zero value is ready.
type Claims struct {
	mu sync.Mutex // guards what follows
	by map[types.NamespacedName]types.UID
}

// Take gives the claim to the pod, unless another one has it.
func (c *Claims) Take(claim types.NamespacedName, pod types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if has, taken := c.by[claim]; taken {
		return has == pod
	}
	if c.by == nil {
		c.by = map[types.NamespacedName]types.UID{}
	}
	c.by[claim] = pod
	return true
}

// Drop takes everything from the pod and returns what others can have now.
func (c *Claims) Drop(pod types.UID) []types.NamespacedName {
	c.mu.Lock()
	defer c.mu.Unlock()
	var free []types.NamespacedName
	for claim, has := range c.by {
		if has == pod {
			delete(c.by, claim)
			free = append(free, claim)
		}
	}
	return free
}
