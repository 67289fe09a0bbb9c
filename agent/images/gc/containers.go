package gc

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
)

// containers removes dead containers, sandboxes and logs. With emptyEnded, it removes everything of pods that have
// ended.
func (c *Collector) containers(ctx context.Context, emptyEnded bool) error {
	if !c.PodsListed() {
		return nil
	}
	pods := c.Pods()
	var errs []error
	for _, dead := range c.policy.Containers(garbage(pods, emptyEnded), c.Clock.Now()) {
		if err := c.Runtime.RemoveContainer(ctx, dead.ID); err != nil {
			errs = append(errs, fmt.Errorf("remove dead container: %w", err))
			continue
		}
		c.count("container", 1)
		pods[dead.Pod].ContainerRemoved(dead.Container)
	}
	for _, pod := range garbage(pods, emptyEnded) {
		for _, id := range Sandboxes(pod) {
			if err := c.Runtime.RemovePodSandbox(ctx, id); err != nil {
				errs = append(errs, fmt.Errorf("remove dead sandbox: %w", err))
				continue
			}
			c.count("sandbox", 1)
			pods[pod.UID].SandboxRemoved(id)
		}
	}
	folders, links := c.Sweep(ctx)
	c.count("log_folder", folders)
	c.count("log_link", links)
	return errors.Join(errs...)
}

// garbage returns what may be removed of the pods.
func garbage(pods map[types.UID]RunningPod, emptyEnded bool) []Pod {
	var out []Pod
	for _, p := range pods {
		if g, ok := p.Garbage(); ok {
			g.All = g.Over && emptyEnded
			out = append(out, g)
		}
	}
	return out
}

func (c *Collector) count(what string, n int) {
	if n > 0 {
		c.removed.WithLabelValues(what).Add(float64(n))
	}
}
