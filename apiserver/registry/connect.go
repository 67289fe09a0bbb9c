package registry

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/admission"
)

// Connect runs admission for a stream or a proxy to the subresource ref, and returns the parent object.
func (r *Registry) Connect(ctx context.Context, ref client.Ref, opts runtime.Object) (Object, error) {
	res, err := r.FindStored(ref.Resource)
	if err != nil {
		return nil, err
	}
	obj, err := r.Get(ctx, ref.Sub(""))
	if err != nil {
		return nil, err
	}
	req := r.request(ctx, admission.Connect, res, ref.Subresource, nil, obj)
	req.Options = opts
	if err := r.admission.Mutate(ctx, req); err != nil {
		return nil, err
	}
	return obj, r.admission.Validate(ctx, req)
}
