package plugins

import (
	"context"
	"errors"
	"fmt"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/admission"
	"monopod/apiserver/registry/kind"
)

// podSecurity checks pods against the Pod Security Standards in the labels of their namespace. Without labels the level
// is privileged.
type podSecurity struct {
	api client.Client
	// evaluator creates the evaluator on its first call.
	evaluator func() (policy.Evaluator, error)
}

// NewPodSecurity returns the plugin PodSecurity. It rejects pods that violate the enforce level of their namespace, and
// warns about pods, templates and labels that violate other levels.
func NewPodSecurity(c client.Client) admission.Plugin {
	s := &podSecurity{api: c, evaluator: sync.OnceValues(func() (policy.Evaluator, error) {
		return policy.NewEvaluator(policy.DefaultChecks(), nil)
	})}
	return admission.Plugin{Name: "PodSecurity", Validate: s.validate}
}

func (s *podSecurity) validate(ctx context.Context, r *admission.Request) error {
	if r.Operation != admission.Create && r.Operation != admission.Update {
		return nil
	}
	switch obj := r.Object.(type) {
	case *corev1.Namespace:
		return s.namespace(ctx, r, obj)
	case *corev1.Pod:
		return s.pod(ctx, r, obj)
	}
	if template := templateOf(r.Object); template != nil && r.Subresource == "" {
		return s.check(ctx, r, checkedPod{&template.ObjectMeta, &template.Spec}, false)
	}
	return nil
}

// privileged returns the policy of a namespace without labels.
func privileged() api.Policy {
	latest, _ := api.ParseVersion(api.VersionLatest) // VersionLatest is valid
	level := api.LevelVersion{Level: api.LevelPrivileged, Version: latest}
	return api.Policy{Enforce: level, Audit: level, Warn: level}
}

func (s *podSecurity) pod(ctx context.Context, r *admission.Request, pod *corev1.Pod) error {
	if !r.ChangesContainers() {
		return nil
	}
	if r.Operation == admission.Update && !imagesChanged(&pod.Spec, &r.Old.(*corev1.Pod).Spec) {
		return nil
	}
	return s.check(ctx, r, checkedPod{&pod.ObjectMeta, &pod.Spec}, true)
}

// imagesChanged reports whether an update adds a container or changes an image. The standards check no other mutable
// field.
func imagesChanged(next, old *corev1.PodSpec) bool {
	had := map[string]string{}
	for name, image := range images(old) {
		had[name] = image
	}
	for name, image := range images(next) {
		if was, ok := had[name]; !ok || was != image {
			return true
		}
	}
	return false
}

// checkedPod is a pod or a pod template.
type checkedPod struct {
	meta *metav1.ObjectMeta
	spec *corev1.PodSpec
}

// check checks a pod or a template against the levels of its namespace.
func (s *podSecurity) check(ctx context.Context, r *admission.Request, pod checkedPod, enforce bool) error {
	ns, err := client.Get[*corev1.Namespace](ctx, s.api, "", r.Namespace)
	if apierrors.IsNotFound(err) && !enforce {
		return nil
	}
	if err != nil {
		return err
	}
	levels, _ := api.PolicyToEvaluate(ns.Labels, privileged()) // invalid labels mean restricted
	if levels.FullyPrivileged() {
		return nil
	}
	if enforce {
		detail, err := s.violations(levels.Enforce, pod)
		if err != nil {
			return err
		}
		if detail != "" {
			return r.Forbid(fmt.Errorf("violates PodSecurity %q: %s", levels.Enforce.String(), detail))
		}
	}
	detail, err := s.violations(levels.Warn, pod)
	if err == nil && detail != "" {
		r.Warn(fmt.Sprintf("would violate PodSecurity %q: %s", levels.Warn.String(), detail))
	}
	return err
}

// violations returns the violations of a level in one line; empty: none.
func (s *podSecurity) violations(level api.LevelVersion, pod checkedPod) (string, error) {
	found, err := s.evaluate(level, pod)
	if err != nil || found.Allowed {
		return "", err
	}
	return found.ForbiddenDetail(), nil
}

func (s *podSecurity) evaluate(level api.LevelVersion, pod checkedPod) (policy.AggregateCheckResult, error) {
	evaluator, err := s.evaluator()
	if err != nil {
		return policy.AggregateCheckResult{}, errors.Join(errors.New("failed to load the Pod Security Standards"), err)
	}
	return policy.AggregateCheckResults(evaluator.EvaluatePod(level, pod.meta, pod.spec)), nil
}

// templateOf returns the pod template of a workload; nil: obj is not a workload.
func templateOf(obj kind.Object) *corev1.PodTemplateSpec {
	switch o := obj.(type) {
	case *corev1.PodTemplate:
		return &o.Template
	case *corev1.ReplicationController:
		return o.Spec.Template
	case *appsv1.ReplicaSet:
		return &o.Spec.Template
	case *appsv1.Deployment:
		return &o.Spec.Template
	case *appsv1.DaemonSet:
		return &o.Spec.Template
	case *appsv1.StatefulSet:
		return &o.Spec.Template
	case *batchv1.Job:
		return &o.Spec.Template
	case *batchv1.CronJob:
		return &o.Spec.JobTemplate.Spec.Template
	}
	return nil
}
