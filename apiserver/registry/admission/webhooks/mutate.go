package webhooks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	reviewv1 "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	"monopod/apiserver/access/audit"
	"monopod/apiserver/codec/patch"
	"monopod/apiserver/codec/quantity"
	"monopod/apiserver/registry/admission"
	"monopod/apiserver/registry/admission/match"
	"monopod/apiserver/registry/kind"
)

// rounds is what is remembered between the two runs of a request.
type rounds struct {
	invoked map[string]bool // webhooks that may be invoked again
	again   map[string]bool // those that are, because the object changed after them
	output  []byte          // the object after the first run
}

// reinvoke marks all invoked webhooks to be invoked again.
func (s *rounds) reinvoke() {
	for id := range s.invoked {
		s.again[id] = true
	}
	clear(s.invoked)
}

// mutate is Mutate of the plugin: it calls one webhook after the other.
func (h *Hooks) mutate(ctx context.Context, r *admission.Request) error {
	now := h.now.Load()
	if now == nil || len(now.mutating) == 0 || r.Part != "" || match.Exempt(ctx, r) {
		return nil
	}
	s, _ := r.Webhooks.(*rounds)
	if s == nil {
		s = &rounds{invoked: map[string]bool{}, again: map[string]bool{}}
		r.Webhooks = s
	}
	if r.Second && !bytes.Equal(s.output, encoded(r.Object)) { // other plugins changed the object
		s.reinvoke()
	}
	v := h.visit(r, true)
	for i, hook := range now.mutating {
		if err := v.mutateBy(ctx, hook, s, i); err != nil {
			return err
		}
	}
	if r.Again && !r.Second {
		s.output = encoded(r.Object)
	}
	return nil
}

func encoded(obj kind.Object) []byte {
	if obj == nil || reflect.ValueOf(obj).IsNil() {
		return nil
	}
	data, err := json.Marshal(obj)
	if err != nil {
		return nil // the webhooks' questions report it
	}
	return data
}

// mutateBy calls a webhook, unless the request does not concern it, and applies its patch.
func (v *visit) mutateBy(ctx context.Context, h *hook, s *rounds, index int) error {
	res, err := v.wants(ctx, h)
	if err != nil || res == nil {
		return err
	}
	place := fmt.Sprintf("round_0_index_%d", index)
	if v.R.Second {
		if !s.again[h.id] {
			return nil
		}
		place = fmt.Sprintf("round_1_index_%d", index)
	}
	answer, err := v.ask(ctx, h, res)
	if err == nil {
		err = v.heard(ctx, h, answer)
	}
	changed := false
	if err == nil {
		changed, err = v.apply(ctx, h, res, answer, place)
	}
	about, _ := json.Marshal(mutation{h.configuration, h.Name, changed}) // of strings, which can be encoded
	audit.Of(ctx).Annotate(mutationAnnotation+place, string(about))
	if changed {
		s.reinvoke()
		v.R.Again = true
	}
	if p := h.ReinvocationPolicy; p != nil && *p == admissionv1.IfNeededReinvocationPolicy {
		s.invoked[h.id] = true
	}
	return v.failed(ctx, h, err, failedMutating+place)
}

// mutation is the value of the annotation about a call of a mutating webhook.
type mutation struct {
	Configuration string `json:"configuration"`
	Webhook       string `json:"webhook"`
	Mutated       bool   `json:"mutated"`
}

// patched is the value of the annotation about a patch.
type patched struct {
	Configuration string          `json:"configuration"`
	Webhook       string          `json:"webhook"`
	Patch         json.RawMessage `json:"patch"`
	PatchType     string          `json:"patchType"`
}

// apply applies the patch of an answer to the request's object, and reports whether the object changed.
func (v *visit) apply(ctx context.Context, h *hook, res *kind.Resource, answer *reviewv1.AdmissionResponse, place string) (bool, error) {
	if len(answer.Patch) == 0 {
		return false, nil
	}
	operations, err := jsonpatch.DecodePatch(answer.Patch)
	switch {
	case err != nil:
		return false, uncallable{h.Name, fmt.Errorf("received undecodable patch in webhook response: %w", err)}
	case len(operations) == 0:
		return false, nil
	case v.R.Object == nil || reflect.ValueOf(v.R.Object).IsNil():
		return false, apierrors.NewInternalError(fmt.Errorf("admission webhook %q attempted to modify the object, which is not supported for this operation", h.Name))
	case *answer.PatchType != reviewv1.PatchTypeJSONPatch:
		return false, uncallable{h.Name, fmt.Errorf("unsupported patch type %q", shortened(string(*answer.PatchType)))}
	}
	before, err := v.raw(v.In(res).Object)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	after, err := patch.Apply(types.JSONPatchType, before.Raw, answer.Patch, nil)
	if err != nil {
		return false, apierrors.NewInternalError(unwrapped(err))
	}
	if record := audit.Of(ctx); record.Wants(audit.Request) {
		about, _ := json.Marshal(patched{h.configuration, h.Name, answer.Patch, "JSONPatch"}) // valid JSON
		record.Annotate(patchAnnotation+place, string(about))
	}
	if bytes.Equal(before.Raw, after) {
		return false, nil
	}
	return v.replace(res, after)
}

// unwrapped returns the error of a patch without the text of the API's error, which is about a client's patch.
func unwrapped(err error) error {
	if _, why, ok := strings.Cut(err.Error(), "did not return more information: "); ok {
		return errors.New(why)
	}
	return err
}

// replace sets the request's object to one in a version, as JSON. It reports whether it changed.
func (v *visit) replace(res *kind.Resource, data []byte) (bool, error) {
	is := v.R.Object
	was := encoded(is)
	f := v.In(res)
	next, err := v.decode(res, data)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	if got := next.GetObjectKind().GroupVersionKind(); got != f.Kind {
		return false, apierrors.NewInternalError(fmt.Errorf("a webhook changed the kind %v to %v", f.Kind, got))
	}
	if v.Whole() {
		if err := v.keep(next, is); err != nil {
			return false, err
		}
		if res.View != nil {
			if next, err = res.View.Stored(context.Background(), next); err != nil {
				return false, apierrors.NewInternalError(err)
			}
		}
	}
	if err := assign(is, next); err != nil {
		return false, apierrors.NewInternalError(err)
	}
	if v.R.Resource.Default != nil && v.Whole() {
		v.R.Resource.Default(is)
	}
	v.Changed()
	return !bytes.Equal(was, encoded(is)), nil
}

// decode returns an object in a version.
func (v *visit) decode(res *kind.Resource, data []byte) (kind.Object, error) {
	make := res.New
	if sub := res.Subresource(v.R.Subresource); sub != nil && sub.New != nil {
		make = sub.New
	}
	next := make()
	if o, ok := next.(interface {
		UnmarshalStrict(data []byte, admit func(bytes int) error) ([]error, error)
	}); ok {
		_, err := o.UnmarshalStrict(data, func(int) error { return nil }) // its defaults were admitted with the request
		return next, err
	}
	if err := quantity.CheckJSON(data, next); err != nil {
		return nil, err
	}
	return next, kjson.UnmarshalCaseSensitivePreserveInts(data, next)
}

// blank removes what the server adds to a new object after the mutating webhooks.
func blank(o kind.Object) {
	if match.Generated(o) {
		o.SetName("")
	}
	o.SetUID("")
	o.SetCreationTimestamp(metav1.Time{})
}

// keep restores what a webhook cannot change.
func (v *visit) keep(next, is kind.Object) error {
	if next.GetNamespace() != is.GetNamespace() {
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	if v.R.Operation == admission.Create && next.GetName() == "" {
		next.SetName(is.GetName())
		next.SetGenerateName(is.GetGenerateName())
	}
	next.SetUID(is.GetUID())
	next.SetResourceVersion(is.GetResourceVersion())
	next.SetGeneration(is.GetGeneration())
	next.SetCreationTimestamp(is.GetCreationTimestamp())
	next.SetDeletionTimestamp(is.GetDeletionTimestamp())
	next.SetDeletionGracePeriodSeconds(is.GetDeletionGracePeriodSeconds())
	next.SetManagedFields(slices.Clone(is.GetManagedFields()))
	next.SetSelfLink("")
	return nil
}

// assign makes one object the other, which must not be used any more.
func assign(to, from kind.Object) error {
	if o, ok := to.(kind.Untyped); ok {
		other, ok := from.(kind.Untyped)
		if !ok {
			return fmt.Errorf("cannot turn a %T into a %T", from, to)
		}
		all, err := other.Unstructured()
		if err != nil {
			return err
		}
		return o.FromUnstructured(all)
	}
	a, b := reflect.ValueOf(to), reflect.ValueOf(from)
	if a.Type() != b.Type() {
		return fmt.Errorf("cannot turn a %T into a %T", from, to)
	}
	a.Elem().Set(b.Elem())
	return nil
}
