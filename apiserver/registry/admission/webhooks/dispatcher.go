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
	if len(h.MatchConditions) > 0 {
		if ok, err := v.meetsConditions(ctx, h, res); err != nil || !ok {
			return nil, err
		}
	}
	return res, nil
}

// meetsConditions reports whether the request meets the webhook's match conditions in a version.
func (v *dispatcher) meetsConditions(ctx context.Context, h *hook, res *kind.Resource) (bool, error) {
	in, err := v.Input(ctx, res, nil, nil)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	ok, err := in.MeetsConditions(ctx, h.conditions())
	if err != nil && !h.ignores() {
		return false, apierrors.NewForbidden(v.Requested.GVR.GroupResource(), v.Name(), err)
	}
	return ok, nil
}

// rawJSON returns an object as JSON.
func rawJSON(obj runtime.Object) (runtime.RawExtension, error) {
	if obj == nil {
		return runtime.RawExtension{}, nil
	}
	data, err := json.Marshal(obj)
	return runtime.RawExtension{Raw: data}, err
}
