package statefulset

import (
	"context"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/controllers/owned"
	"monopod/controllers/revisions"
)

// podName returns the name of a pod, which is also its hostname.
func podName(set *appsv1.StatefulSet, ordinal int) string {
	return set.Name + "-" + strconv.Itoa(ordinal)
}

// podFor returns a new pod of an ordinal.
func (r *run) podFor(st *syncState, ordinal int) (*corev1.Pod, error) {
	revision, template := st.revisionFor(ordinal), &st.set.Spec.Template
	if revision != st.update {
		var err error
		if template, err = revisions.Template(revision); err != nil {
			return nil, err
		}
	}
	pod := owned.NewPod(st.set, r.Adopter.Ref(st.set), template)
	pod.Name = podName(st.set, ordinal)
	setIdentity(pod, ordinal)
	pod.Labels[appsv1.StatefulSetRevisionLabel] = revision.Name
	pod.Spec.Hostname, pod.Spec.Subdomain = pod.Name, st.set.Spec.ServiceName
	var volumes []corev1.Volume // those with a claim template use the claims of the ordinal
	for i := range st.set.Spec.VolumeClaimTemplates {
		claim := &st.set.Spec.VolumeClaimTemplates[i]
		volumes = append(volumes, corev1.Volume{Name: claim.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimName(st.set, claim, ordinal)},
		}})
	}
	for _, volume := range pod.Spec.Volumes {
		if !slices.ContainsFunc(volumes, func(has corev1.Volume) bool { return has.Name == volume.Name }) {
			volumes = append(volumes, volume)
		}
	}
	pod.Spec.Volumes = volumes
	return pod, nil
}

// setIdentity labels a pod with its name and ordinal.
func setIdentity(pod *corev1.Pod, ordinal int) {
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[appsv1.StatefulSetPodNameLabel], pod.Labels[appsv1.PodIndexLabel] = pod.Name, strconv.Itoa(ordinal)
}

// create creates the claims and the pod of a replica. It fails while a claim of the previous pod is about to be
// deleted.
func (r *run) create(ctx context.Context, st *syncState, rep *replica) error {
	pod, err := r.podFor(st, rep.ordinal)
	if err != nil {
		return err
	}
	if stale, err := r.stale(ctx, st, rep.ordinal); stale || err != nil {
		return err // the deletion of the claim wakes the set
	}
	name := pod.Name
	err = r.createClaims(ctx, st, rep)
	if err == nil {
		var made client.Object
		if made, err = r.deps.Client.Create(ctx, pod); err == nil {
			rep.pod = made.(*corev1.Pod)
		}
	}
	switch {
	case owned.NamespaceTerminating(err):
		return nil // the namespace is terminating
	case apierrors.IsAlreadyExists(err):
		return err
	}
	r.recordEvent(st, "create", name, err)
	return err
}

// delete starts the deletion of a replica's pod.
func (r *run) delete(ctx context.Context, st *syncState, rep *replica) error {
	_, err := r.deps.Client.Delete(ctx, client.RefOf(rep.pod),
		metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(rep.pod.UID))})
	if owned.Gone(err) {
		return nil
	}
	r.recordEvent(st, "delete", rep.pod.Name, err)
	if err == nil && rep.pod.DeletionTimestamp == nil {
		rep.pod = rep.pod.DeepCopy() // the index shares the pod
		rep.pod.DeletionTimestamp = new(metav1.NewTime(st.now))
	}
	return err
}

// identify restores the labels of a replica's pod.
func (r *run) identify(ctx context.Context, st *syncState, rep *replica) error {
	labels := rep.pod.Labels
	if labels[appsv1.StatefulSetPodNameLabel] == rep.pod.Name &&
		labels[appsv1.PodIndexLabel] == strconv.Itoa(rep.ordinal) {
		return nil
	}
	next, err := client.Update(ctx, r.deps.Client, rep.pod, "", func(p *corev1.Pod) error {
		setIdentity(p, rep.ordinal)
		return nil
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	r.recordEvent(st, "update", rep.pod.Name, err)
	if err == nil {
		rep.pod = next
	}
	return err
}

// recordEvent records an Event about a pod with upstream's text.
func (r *run) recordEvent(st *syncState, verb, pod string, err error) {
	title := strings.ToUpper(verb[:1]) + verb[1:]
	if err == nil {
		r.events.Eventf(st.set, corev1.EventTypeNormal, "Successful"+title, "%s Pod %s in StatefulSet %s successful", verb,
			pod, st.set.Name)
		return
	}
	r.events.Eventf(st.set, corev1.EventTypeWarning, "Failed"+title, "%s Pod %s in StatefulSet %s failed error: %v", verb,
		pod, st.set.Name, err)
}
