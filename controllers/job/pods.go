package job

import (
	"fmt"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/controllers/owned"
)

const (
	// indexEnv is the environment variable that contains the pod's index.
	indexEnv = "JOB_COMPLETION_INDEX"
	// maxBase is the maximum length of a generateName that is not truncated: 63 characters of a label minus five random
	// characters (upstream names.MaxGeneratedNameLength).
	maxBase = 63 - 5
)

// podFor returns a new pod of the Job; index is used if the Job is Indexed.
func (r *run) podFor(st *syncState, index int32) *corev1.Pod {
	job, pod := st.job, owned.NewPod(st.job, r.adopter.Ref(st.job), &st.job.Spec.Template)
	if !tracked(pod) {
		pod.Finalizers = append(pod.Finalizers, batchv1.JobTrackingFinalizer)
	}
	if !indexed(job) {
		return pod
	}
	text := strconv.Itoa(int(index))
	suffix := "-" + text + "-"
	pod.GenerateName = job.Name[:min(len(job.Name), maxBase-len(suffix))] + suffix
	pod.Spec.Hostname = fmt.Sprintf("%s-%d", job.Name, index)
	metav1.SetMetaDataLabel(&pod.ObjectMeta, batchv1.JobCompletionIndexAnnotation, text)
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, batchv1.JobCompletionIndexAnnotation, text)
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			c := &containers[i]
			if slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool { return v.Name == indexEnv }) {
				continue
			}
			c.Env = append(c.Env, corev1.EnvVar{Name: indexEnv, ValueFrom: &corev1.EnvVarSource{
				FieldRef: &corev1.ObjectFieldSelector{FieldPath: fmt.Sprintf("metadata.labels['%s']",
					batchv1.JobCompletionIndexAnnotation)},
			}})
		}
	}
	if job.Spec.BackoffLimitPerIndex == nil {
		return pod
	}
	// The pod continues the failure count of its index from the failed pod that it replaces.
	var count, ignored int32
	if failed := st.replaced[index]; failed != nil {
		count, _ = number(failed, batchv1.JobIndexFailureCountAnnotation)
		ignored, _ = number(failed, batchv1.JobIndexIgnoredFailureCountAnnotation)
		if _, action := st.matchFailure(failed); action == batchv1.PodFailurePolicyActionIgnore {
			ignored++
		} else {
			count++
		}
	}
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, batchv1.JobIndexFailureCountAnnotation, strconv.Itoa(int(count)))
	if ignored > 0 {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, batchv1.JobIndexIgnoredFailureCountAnnotation,
			strconv.Itoa(int(ignored)))
	}
	return pod
}
