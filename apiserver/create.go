package apiserver

import (
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/registry"
)

func (s *Server) create(w http.ResponseWriter, r *http.Request, t target) error {
	if a, ok := s.answerFor(t); ok {
		return s.createAnswer(w, r, t, a)
	}
	f, err := negotiateWrite(r)
	if err != nil {
		return err
	}
	data, err := body(r)
	if err != nil {
		return err
	}
	obj, err := decodeObject(w, r, t, data)
	if err != nil {
		return err
	}
	if r, err = withDryRun(r); err != nil {
		return err
	}
	stored, err := s.registry.Create(r.Context(), obj)
	if err != nil {
		return err
	}
	return s.answer(w, r, f, t, http.StatusCreated, stored)
}

// withDryRun marks the request's context where the query says so.
func withDryRun(r *http.Request, more ...string) (*http.Request, error) {
	for _, v := range append(r.URL.Query()["dryRun"], more...) {
		switch v {
		case "":
		case metav1.DryRunAll:
			return r.WithContext(registry.DryRun(r.Context())), nil
		default:
			return r, apierrors.NewBadRequest(`dryRun: Unsupported value: "` + v + `": supported values: "All"`)
		}
	}
	return r, nil
}

// createSub is a POST below an object: a binding, or a stream.
func (s *Server) createSub(w http.ResponseWriter, r *http.Request, t target) error {
	if a, ok := s.answerFor(t); ok {
		return s.createAnswer(w, r, t, a)
	}
	switch t.ref.Subresource {
	case "binding":
		return s.bind(w, r, t)
	case "exec", "attach", "portforward":
		return s.stream(w, r, t)
	}
	return apierrors.NewMethodNotSupported(t.ref.Resource.GroupResource(), r.Method)
}

// bind puts a pod onto the node that the body's target names.
func (s *Server) bind(w http.ResponseWriter, r *http.Request, t target) error {
	f, err := negotiateWrite(r)
	if err != nil {
		return err
	}
	b, err := decodeBinding(w, r, t)
	if err != nil {
		return err
	}
	if r, err = withDryRun(r); err != nil {
		return err
	}
	_, err = s.registry.Update(r.Context(), t.ref, func(cur registry.Object) (registry.Object, error) {
		pod := cur.DeepCopyObject().(*corev1.Pod)
		pod.Spec.NodeName, pod.Annotations = b.Target.Name, b.Annotations
		pod.UID = b.UID
		return pod, nil
	})
	if err != nil {
		return err
	}
	s.send(w, r, f, http.StatusCreated, success(http.StatusCreated, nil))
	return nil
}

func decodeBinding(w http.ResponseWriter, r *http.Request, t target) (*corev1.Binding, error) {
	data, err := body(r)
	if err != nil {
		return nil, err
	}
	b, kind := &corev1.Binding{}, corev1.SchemeGroupVersion.WithKind("Binding")
	if err := decode(w, r, data, b); err != nil {
		return nil, err
	}
	if err := checkKind(b.GroupVersionKind(), kind); err != nil {
		return nil, err
	}
	if err := checkName(b, t.ref, true); err != nil {
		return nil, err
	}
	if errs := validateTarget(&b.Target, field.NewPath("target")); len(errs) > 0 {
		return nil, apierrors.NewInvalid(kind.GroupKind(), b.Name, errs)
	}
	return b, nil
}

// validateTarget wants a node (upstream: validation.ValidatePodBinding).
func validateTarget(target *corev1.ObjectReference, path *field.Path) (errs field.ErrorList) {
	if target.Kind != "" && target.Kind != "Node" {
		errs = append(errs, field.NotSupported(path.Child("kind"), target.Kind, []string{"Node", "<empty>"}))
	}
	if target.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	return errs
}
