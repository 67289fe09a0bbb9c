package registry

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/client"
	"monopod/apiserver/registry/admission"
	"monopod/apiserver/registry/eviction"
)

func newEvictions(r *Registry) *eviction.Evictor {
	return &eviction.Evictor{
		API:    r,
		Serves: func(gvr schema.GroupVersionResource) bool { return r.byGVR[gvr] != nil },
		Admit: func(ctx context.Context, asked *policyv1.Eviction, victim *corev1.Pod) error {
			return r.admitPosted(ctx, client.Pods, "eviction", asked, victim)
		},
		Check: func(victim client.Object, p *metav1.Preconditions) error {
			return preconditions(r.byGVR[client.Pods], victim, p)
		},
		DryRun: DryRun, IsDryRun: isDryRun, Now: r.now,
	}
}

// admitPosted asks admission about obj, which is posted to a subresource of old and
// not stored.
func (r *Registry) admitPosted(ctx context.Context, gvr schema.GroupVersionResource, sub string, obj, old Object) error {
	asked := r.request(ctx, admission.Create, r.byGVR[gvr], sub, obj, old)
	if err := r.admission.Mutate(ctx, asked); err != nil {
		return err
	}
	return r.admission.Validate(ctx, asked)
}
