package apiserver

import (
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/registry"
)

func (s *Server) create(w http.ResponseWriter, r *http.Request, t target) error {
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
	return s.answer(w, r, http.StatusCreated, stored)
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
	switch t.ref.Subresource {
	case "binding":
		return s.bind(w, r, t)
	case "exec", "attach", "portforward":
		return s.stream(w, r, t)
	}
	return apierrors.NewMethodNotSupported(t.ref.Resource.GroupResource(), r.Method)
}

func (s *Server) bind(w http.ResponseWriter, r *http.Request, t target) error {
	data, err := body(r)
	if err != nil {
		return err
	}
	var b corev1.Binding
	if err := decode(w, r, data, &b); err != nil {
		return err
	}
	if err := checkKind(b.GroupVersionKind(), corev1.SchemeGroupVersion.WithKind("Binding")); err != nil {
		return err
	}
	if err := checkName(&b, t.ref, true); err != nil {
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
	f, err := negotiate(r)
	if err != nil {
		return err
	}
	s.send(w, r, f, http.StatusCreated, &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess, Code: http.StatusCreated})
	return nil
}
