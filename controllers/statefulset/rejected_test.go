package statefulset

import (
	"testing"
	"time"

	"monopod/controllers/internal/apitest"

	corev1 "k8s.io/api/core/v1"
)

// The controller replaces a pod that its node rejects with growing delays. A change of the template resets the delay.
func TestRejectedPods(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(db(1))
		rejected := 0
		reject := func(seconds int) {
			for range seconds {
				apitest.Settle(time.Second)
				if p := c.pod("db-0"); p != nil && p.Status.Phase == corev1.PodPending {
					c.Phase(p, corev1.PodFailed, false)
					rejected++
				}
			}
		}
		reject(3600)
		if rejected < 10 || rejected > 16 {
			t.Errorf("%d pods were rejected in an hour, want 10 to 16", rejected)
		}
		c.image("v2")
		if rejected = 0; c.pod("db-0").Status.Phase != corev1.PodPending {
			t.Error("the pod of the new template was not created at once")
		}
		if reject(60); rejected < 4 {
			t.Errorf("%d pods of the new template were rejected in a minute, want at least 4", rejected)
		}
	})
}
