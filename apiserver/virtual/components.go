package virtual

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
)

// components answers componentstatuses: each of Kubernetes' components has the health of the part that replaces it.
func (v *virtual) components() Answers {
	return Answers{client.ComponentStatuses: {
		Get: func(ctx context.Context, ref client.Ref) (kind.Object, error) {
			if !slices.Contains(componentNames(), ref.Name) {
				return nil, apierrors.NewNotFound(ref.Resource.GroupResource(), ref.Name)
			}
			return v.component(ctx, ref.Name), nil
		},
		List: func(ctx context.Context, sel client.Selector) ([]kind.Object, error) {
			var all []kind.Object
			for _, name := range componentNames() {
				labelled := sel.Labels == nil || sel.Labels.Matches(labels.Set{})
				named := sel.Fields == nil || sel.Fields.Matches(fields.Set{"metadata.name": name})
				if labelled && named {
					all = append(all, v.component(ctx, name))
				}
			}
			return all, nil
		},
	}}
}

func componentNames() []string { return []string{"controller-manager", "etcd-0", "scheduler"} }

// component runs the checks of a component.
func (v *virtual) component(ctx context.Context, name string) *corev1.ComponentStatus {
	health := corev1.ComponentCondition{Type: corev1.ComponentHealthy, Status: corev1.ConditionTrue, Message: "ok"}
	for _, check := range v.Checks {
		if componentOf(check.Name) != name {
			continue
		}
		if err := check.Ask(ctx); err != nil {
			health.Status, health.Message, health.Error = corev1.ConditionFalse, check.Name, err.Error()
		}
	}
	return &corev1.ComponentStatus{
		TypeMeta:   metav1.TypeMeta{Kind: "ComponentStatus", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: name}, Conditions: []corev1.ComponentCondition{health},
	}
}

// componentOf returns the component of a check. All checks except those of the server belong to controllers.
func componentOf(check string) string {
	switch check {
	case "ping":
		return ""
	case "etcd":
		return "etcd-0"
	case "scheduler", "kube-scheduler":
		return "scheduler"
	}
	return "controller-manager"
}
