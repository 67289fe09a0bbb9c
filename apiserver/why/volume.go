package why

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	binding "monopod/apiserver/kit/claim"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/words"
	"monopod/apiserver/why/facts"
)

var (
	absentObject = regexp.MustCompile(
		`(?i)\b(configmap|secret|persistentvolumeclaim|persistentvolume|serviceaccount) "([^"]+)" not found`)
	absentKey = regexp.MustCompile(`(configmap|secret)? ?references non-existent (?:config|secret) key: (\S+)`)
	wrongPath = regexp.MustCompile(`hostPath type check failed: (.+)`)
)

// missing explains a message about a referenced object that does not exist. It returns nil for other messages.
func missing(subject, message string, evidence []string) *Answer {
	m := absentObject.FindStringSubmatch(message)
	if m == nil {
		return nil
	}
	return absent(subject, m[1], m[2], append([]string{words.Clip(message)}, evidence...))
}

// absent explains that an object does not exist; kind may be in lower case.
func absent(subject, kind, name string, evidence []string) *Answer {
	kind = kindNamed(kind)
	return found(
		fmt.Sprintf("Create the %s %s, correct the reference, or mark it as optional; it starts by itself then.", kind, name),
		evidence,
		"%s: the %s %s does not exist.", subject, kind, name)
}

// kindNamed returns the proper spelling of a kind that a volume may refer to.
func kindNamed(text string) string {
	for _, kind := range []string{"ConfigMap", "Secret", "PersistentVolumeClaim", "PersistentVolume", "ServiceAccount"} {
		if strings.EqualFold(kind, text) {
			return kind
		}
	}
	return text
}

// unprepared explains a pod on a node whose containers cannot be created, or not again, because of volumes, sandbox or
// devices. A missing object that a volume needs is the cause whatever the Events say, because they may be missing or
// stale.
func (f explanation) unprepared(p *corev1.Pod) *Answer {
	if !facts.Unprepared(p) {
		return nil
	}
	subject, ended := fmt.Sprintf("Pod %s does not start", p.Name), time.Time{}
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if t := s.State.Terminated; t != nil {
			subject = fmt.Sprintf("Pod %s does not start again", p.Name)
			if t.FinishedAt.After(ended) {
				ended = t.FinishedAt.Time
			}
		}
	}
	events := slices.DeleteFunc(f.Warnings(p), func(e *corev1.Event) bool {
		return e.Reason == "FailedScheduling" || facts.LastOf(e).Before(ended)
	})
	evidence := f.EventLines(events)
	for _, ref := range facts.Sources(p) {
		if f.Lacks(ref.Resource, ref.Namespace, ref.Name) {
			return absent(subject, strings.TrimSuffix(ref.Resource.Resource, "s"), ref.Name, evidence)
		}
	}
	for _, name := range facts.Claims(p) {
		if claim := facts.Related[*corev1.PersistentVolumeClaim](f.Facts, p.Namespace, name); claim != nil &&
			claim.Status.Phase != corev1.ClaimBound {
			a := f.about(claim).claim(claim)
			a.Sentence, a.Evidence = subject+": "+a.Sentence, append(evidence, a.Evidence...)
			return &a
		}
	}
	if a := f.notMounted(p, subject, evidence); a != nil {
		return a
	}
	if pulling := f.Last(p, "", "Pulling", "Pulled"); len(events) == 0 || pulling != nil && pulling.Reason == "Pulling" &&
		facts.LastOf(pulling).After(facts.LastOf(events[len(events)-1])) {
		return nil
	}
	e := events[len(events)-1]
	if restarted := !ended.IsZero(); restarted &&
		!slices.Contains(
			[]string{"FailedMount", "FailedAttachVolume", "FailedMapVolume", "FailedCreatePodSandBox", "WaitingForDevicePlugin",
				"NetworkNotReady"}, e.Reason) {
		return nil // its containers end, one after the other
	}
	if m := absentObject.FindStringSubmatch(e.Message); m != nil &&
		slices.ContainsFunc(f.Others, func(o client.Object) bool {
			return o.GetName() == m[2] && strings.EqualFold(words.Kind(o), m[1])
		}) {
		return found("Wait; the node tries again by itself, at the latest after two minutes.", evidence,
			"%s: the %s %s did not exist at the last attempt, and exists now.", subject, kindNamed(m[1]), m[2])
	}
	switch e.Reason {
	case "FailedMount", "FailedAttachVolume", "FailedMapVolume":
		if a := f.mountRefused(p, subject, e.Message, evidence); a != nil {
			return a
		}
		return mountFailed(subject, e.Message, evidence)
	case "FailedCreatePodSandBox":
		message := strings.TrimPrefix(e.Message, "Failed to create pod sandbox: ")
		if c := Sandbox(message); c.Sentence != "" {
			return found(c.Do, evidence, "%s: %s: %s.", subject, c.Sentence, words.Cause(message))
		}
		return found("Read the message, the log of monopod and /readyz?verbose; the node tries again by itself.", evidence,
			"%s: its sandbox cannot be created: %s.", subject, words.Clip(message))
	case "WaitingForDevicePlugin":
		return found("Start the device plugin.", evidence, "%s: the plugin of its device does not run.", subject)
	case "NetworkNotReady":
		return found("Check the pod network: the log of monopod and /readyz?verbose say what fails.", evidence,
			"%s: the network of its node is not ready.", subject)
	}
	if a := missing(subject, e.Message, evidence); a != nil {
		return a
	}
	return found("Fix what the event reports; the node tries again by itself.", evidence, "%s: %s.", subject,
		words.Clip(e.Message))
}

// mountFailed explains a volume that fails to mount.
func mountFailed(subject, message string, evidence []string) *Answer {
	if a := missing(subject, message, evidence); a != nil {
		return a
	}
	if m := absentKey.FindStringSubmatch(message); m != nil {
		return found(fmt.Sprintf("Add the key %s, correct items, or mark the volume as optional.", m[2]), evidence,
			"%s: a volume uses the key %s, which its source does not have.", subject, m[2])
	}
	if m := wrongPath.FindStringSubmatch(message); m != nil {
		return found("Create the path on the node, or change hostPath.type (DirectoryOrCreate, FileOrCreate).", evidence,
			"%s: a hostPath volume does not fit: %s.", subject, words.Clip(m[1]))
	}
	return found("Fix what the event reports; the node tries again by itself.", evidence,
		"%s: a volume fails to mount: %s.", subject, words.Clip(message))
}

// claim explains a PersistentVolumeClaim.
func (f explanation) claim(c *corev1.PersistentVolumeClaim) Answer {
	events := f.EventLines(f.EventsOf(c))
	class := ""
	if c.Spec.StorageClassName != nil {
		class = *c.Spec.StorageClassName
	}
	sc := facts.Related[*storagev1.StorageClass](f.Facts, "", class)
	failed := f.Last(c, "", "ProvisioningFailed")
	if failed != nil && failed.Source.Component == "persistentvolume-controller" {
		failed = nil // it reports only a missing class, which the facts show
	}
	users, waits := f.users(), binding.WaitsForConsumer(sc)
	switch {
	case c.DeletionTimestamp != nil && len(users) > 0:
		return answer("Delete these pods, or let them end; the claim goes then.", append(events, words.List("pod", users)),
			"Claim %s is being deleted and stays until its pods have ended: %s.", c.Name, strings.Join(users, ", "))
	case c.DeletionTimestamp != nil:
		return *f.terminating()
	case c.Status.Phase == corev1.ClaimBound:
		if a := f.changing(c, events); a != nil {
			return *a
		}
		return answer("", events, "Claim %s is bound to the volume %s.", c.Name, c.Spec.VolumeName)
	case c.Status.Phase == corev1.ClaimLost:
		return answer("Delete the claim and create it again; the data is where the volume was.", events,
			"Claim %s has lost its volume %s, which no longer exists.", c.Name, c.Spec.VolumeName)
	case c.Spec.StorageClassName == nil:
		return answer(
			"Mark a StorageClass as the default (storageclass.kubernetes.io/is-default-class), or name one in the claim.",
			events, "Claim %s waits for a volume: it names no StorageClass, and there is no default one.", c.Name)
	case class != "" && sc == nil:
		return answer("Create the StorageClass, or create the claim again with one of: kubectl get storageclass", events,
			"Claim %s waits for a volume: the StorageClass %q does not exist.", c.Name, class)
	case failed != nil && external(sc):
		return answer(fmt.Sprintf("Fix what the provisioner %q reports; it tries again by itself.", sc.Provisioner), events,
			"Claim %s waits for a volume: %s.", c.Name, answered(failed.Message))
	case failed != nil:
		return answer("Change the claim as the message says; create it again if the field cannot change.", events,
			"Claim %s waits for a volume: %s.", c.Name, words.Clip(failed.Message))
	case waits && len(users) == 0:
		return answer("", events,
			"Claim %s waits for its first pod, and nothing is wrong: the StorageClass %q binds claims when a pod uses them.",
			c.Name, class)
	case class == "" || sc != nil && sc.Provisioner == "kubernetes.io/no-provisioner":
		return answer("Create a PersistentVolume with the same class, enough capacity and the access modes.", events,
			"Claim %s waits for a volume: no PersistentVolume fits, and nothing provisions one.", c.Name)
	case waits && c.Annotations[binding.SelectedNode] == "":
		return answer("Find out why the pod has no node: monopod why pod/"+users[0], events,
			"Claim %s waits until pod %s has a node.", c.Name, users[0])
	}
	if external(sc) {
		return f.awaitsProvisioner(c, sc.Provisioner, events)
	}
	return answer(fmt.Sprintf("Check that the provisioner %q runs.", sc.Provisioner), events,
		"Claim %s waits for the provisioner %q.", c.Name, sc.Provisioner)
}

// users returns the names of the running pods that use Object.
func (f explanation) users() (out []string) {
	for _, p := range f.Pods {
		if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			out = append(out, p.Name)
		}
	}
	return out
}
