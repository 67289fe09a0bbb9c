package virtual

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/metrics"
	"monopod/apiserver/registry/kind"
)

// Usage returns the current resource usage of the nodes and their pods. What is not available is missing.
type Usage func(ctx context.Context) ([]*metrics.NodeMetrics, []*metrics.PodMetrics, error)

// metrics answers metrics.k8s.io from Config.Usage.
func (v *virtual) metrics() Answers {
	return Answers{
		metrics.Nodes(): measured(func(ctx context.Context) ([]kind.Object, error) {
			nodes, _, err := v.usage(ctx)
			return objects(nodes), err
		}),
		metrics.Pods(): measured(func(ctx context.Context) ([]kind.Object, error) {
			_, pods, err := v.usage(ctx)
			return objects(pods), err
		}),
	}
}

func objects[T kind.Object](all []T) []kind.Object {
	out := make([]kind.Object, len(all))
	for i, o := range all {
		out[i] = o
	}
	return out
}

func (v *virtual) usage(ctx context.Context) ([]*metrics.NodeMetrics, []*metrics.PodMetrics, error) {
	if v.Usage == nil {
		return nil, nil, nil
	}
	nodes, pods, err := v.Usage(ctx)
	if err != nil && ctx.Err() == nil {
		err = apierrors.NewServiceUnavailable("metrics not available: " + err.Error())
	}
	return nodes, pods, err
}

// measured returns an Answer for get and list of the objects that all returns.
func measured(all func(ctx context.Context) ([]kind.Object, error)) Answer {
	return Answer{
		Get: func(ctx context.Context, ref client.Ref) (kind.Object, error) {
			objs, err := all(ctx)
			if err != nil {
				return nil, err
			}
			for _, obj := range objs {
				if obj.GetName() == ref.Name && obj.GetNamespace() == ref.Namespace {
					return obj, nil
				}
			}
			return nil, apierrors.NewNotFound(ref.Resource.GroupResource(), ref.Name)
		},
		List: func(ctx context.Context, sel client.Selector) ([]kind.Object, error) {
			objs, err := all(ctx)
			var out []kind.Object
			for _, obj := range objs {
				if selects(sel, obj) {
					out = append(out, obj)
				}
			}
			return out, err
		},
	}
}

func selects(sel client.Selector, obj kind.Object) bool {
	return (sel.Namespace == "" || obj.GetNamespace() == sel.Namespace) &&
		(sel.Labels == nil || sel.Labels.Matches(labels.Set(obj.GetLabels()))) &&
		(sel.Fields == nil ||
			sel.Fields.Matches(fields.Set{"metadata.name": obj.GetName(), "metadata.namespace": obj.GetNamespace()}))
}
