package controllers

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/controllers/internal/apitest"
)

// A pod with a missing ResourceClaimTemplate gets an Event, even if the cluster has no other object of dynamic resource
// allocation, and whether the pod is created before or after the manager starts.
func TestPodWakesTheControllerOfClaims(t *testing.T) {
	t.Parallel()
	for name, early := range map[string]bool{"a new pod": false, "an existing pod": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				api := apitest.New(t)
				pod := apitest.Pod("default", "p", func(p *corev1.Pod) {
					p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: new("absent")}}
				})
				if early {
					api.Create(pod)
				}
				cfg := served()
				cfg.Controllers = []string{"resourceclaim-controller"}
				manage(t, api, cfg)
				if !early {
					apitest.Settle(time.Second)
					api.Create(pod)
				}
				apitest.Settle(5 * time.Second)
				var said []string
				for _, e := range apitest.List[*corev1.Event](api, "default") {
					said = append(said, e.Reason+": "+e.Message)
				}
				const want = `FailedResourceClaimCreation: PodResourceClaim gpu: resource claim template "absent": ` +
					`resourceclaimtemplates.resource.k8s.io "absent" not found`
				if len(said) != 1 || said[0] != want {
					t.Errorf("events %q", said)
				}
			})
		})
	}
}
