package webhooks

import (
	"context"
	"encoding/json"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"monopod/apiserver/registry/admission"
	"monopod/apiserver/registry/admission/match"
	"monopod/apiserver/registry/kind"
)

// dispatcher calls the webhooks of one request.
type dispatcher struct {
	*Hooks
	*match.Request
}

func (h *Hooks) newDispatcher(r *admission.Request, mutating bool) *dispatcher {
	return &dispatcher{h, match.New(&h.cfg.Config, r, mutating)}
}

// matchingVersion returns the version of the object that the webhook gets; nil: the webhook does not match the request.
func (v *dispatcher) matchingVersion(ctx context.Context, h *hook) (*kind.Resource, error) {
	res := v.MatchingVersion(h.rules, h.MatchPolicy)
	if res == nil {
		return nil, nil
	}
	if ok, err := v.Selected(ctx, &h.selectors); err != nil || !ok {
		return nil, err
	}
	if len(h.MatchConditions) == 0 {
		return res, nil
	}
	in, err := v.Input(ctx, res, nil, nil)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	ok, err := in.MeetsConditions(ctx, h.conditions())
	switch {
	case err != nil && !h.ignores():
		return nil, apierrors.NewForbidden(v.Requested.GVR.GroupResource(), v.Name(), err)
	case !ok:
		return nil, nil
	}
	return res, nil
}

// rawJSON returns an object as JSON.
func rawJSON(obj runtime.Object) (runtime.RawExtension, error) {
	if obj == nil {
		return runtime.RawExtension{}, nil
	}
	data, err := json.Marshal(obj)
	return runtime.RawExtension{Raw: data}, err
}
