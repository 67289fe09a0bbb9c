package policies

import (
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/admission/match"
	"monopod/apiserver/registry/kind"
)

// params returns the parameters of a binding: a single nil if the policy has none, an empty list if no object exists
// and the binding allows that. The errors have upstream's words.
func (v *matcher) params(ctx context.Context, of *admissionv1.ParamKind,
	ref *admissionv1.ParamRef) ([]runtime.Object, error) {
	if of == nil || ref == nil {
		return []runtime.Object{nil}, nil
	}
	res := v.cfg.Kind(schema.FromAPIVersionAndKind(of.APIVersion, of.Kind))
	if res == nil {
		return nil, fmt.Errorf("paramKind kind `%v` not known", schema.FromAPIVersionAndKind(of.APIVersion, of.Kind))
	}
	namespace, err := v.paramsNamespace(res, ref)
	if err != nil {
		return nil, err
	}
	found, err := v.find(ctx, res, namespace, ref)
	if err != nil {
		return nil, fmt.Errorf("failed to get params: %w", err)
	}
	if len(found) == 0 && ref.ParameterNotFoundAction != nil && *ref.ParameterNotFoundAction == admissionv1.DenyAction {
		return nil, errors.New("no params found for policy binding with `Deny` parameterNotFoundAction")
	}
	return found, nil
}

// paramsNamespace returns the namespace of the parameters, by default the request's.
func (v *matcher) paramsNamespace(res *kind.Resource, ref *admissionv1.ParamRef) (string, error) {
	switch {
	case !res.Namespaced && ref.Namespace != "":
		return "", errors.New("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
	case !res.Namespaced:
		return "", nil
	case ref.Namespace != "":
		return ref.Namespace, nil
	case v.Request.Namespace == "":
		return "", errors.New("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
	}
	return v.Request.Namespace, nil
}

func (v *matcher) find(ctx context.Context, res *kind.Resource, namespace string,
	ref *admissionv1.ParamRef) (out []runtime.Object, err error) {
	if ref.Name != "" {
		obj, err := v.cfg.API.Get(ctx, client.Ref{Resource: res.GVR, Namespace: namespace, Name: ref.Name})
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return []runtime.Object{match.WithKind(obj, res.GVK())}, err
	}
	labels, err := metav1.LabelSelectorAsSelector(ref.Selector)
	if err != nil {
		return nil, err
	}
	all, _, err := v.cfg.API.List(ctx, client.Selector{Resource: res.GVR, Namespace: namespace, Labels: labels})
	for _, obj := range all {
		out = append(out, match.WithKind(obj, res.GVK()))
	}
	return out, err
}
