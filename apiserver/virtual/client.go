package virtual

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/kit/client"
)

// Measured returns api with metrics.k8s.io, which usage computes, for parts of this process.
func Measured(api client.Ordered, usage Usage) client.Ordered {
	return &withMetrics{Ordered: api, answers: (&virtual{Config{Usage: usage}}).metrics()}
}

type withMetrics struct {
	client.Ordered
	answers Answers
}

// Get implements client.Client.
func (m *withMetrics) Get(ctx context.Context, ref client.Ref) (client.Object, error) {
	a, ok := m.answers[ref.Resource]
	switch {
	case !ok:
		return m.Ordered.Get(ctx, ref)
	case ref.Subresource != "":
		return nil, apierrors.NewNotFound(
			schema.GroupResource{Group: ref.Resource.Group, Resource: ref.Resource.Resource + "/" + ref.Subresource}, ref.Name)
	}
	return a.Get(ctx, ref)
}

// List implements client.Client. Metrics have no resourceVersion.
func (m *withMetrics) List(ctx context.Context, sel client.Selector) ([]client.Object, string, error) {
	a, ok := m.answers[sel.Resource]
	if !ok {
		return m.Ordered.List(ctx, sel)
	}
	objs, err := a.List(ctx, sel)
	return objs, "", err
}
