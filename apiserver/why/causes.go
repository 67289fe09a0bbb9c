package why

import (
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/words"
)

// Cause explains a message. Sentence is empty if the message is unknown.
type Cause struct {
	Sentence string // the end of a sentence that begins with "because"
	Do       string // what the user should do
}

// pattern is a cause with the phrases, in lower case, of which a message of this cause contains one.
type pattern struct {
	phrases []string
	Cause
}

// firstMatch returns the first cause of which the message contains a phrase.
func firstMatch(all []pattern, message string) Cause {
	message = strings.ToLower(message)
	for _, p := range all {
		for _, phrase := range p.phrases {
			if strings.Contains(message, phrase) {
				return p.Cause
			}
		}
	}
	return Cause{}
}

// Pull returns why an image cannot be pulled. The order of the causes matters, because a message may match several.
func Pull(message string) Cause {
	return firstMatch([]pattern{
		{[]string{"the archive that was imported is built for"},
			Cause{"the archive that was imported with it is built for another processor",
				"Import an archive for this machine's processor: docker save --platform, or skopeo copy --override-arch."}},
		{[]string{"pull access denied", "insufficient_scope", "401 unauthorized", "403 forbidden", "unauthorized",
			"no basic auth credentials", "authorization failed", "failed to authorize", "authentication required"},
			Cause{"the registry refuses access without other credentials, or the repository does not exist",
				"Name a Secret of type kubernetes.io/dockerconfigjson in imagePullSecrets, write credentials to config.json " +
					"in the data folder, or correct the name."}},
		{[]string{"toomanyrequests", "429 too many requests"},
			Cause{"the registry limits the number of pulls, and the limit is reached",
				"Wait, log in to the registry (imagePullSecrets), or use a mirror (containerd/certs.d)."}},
		{[]string{"no such host", "server misbehaving", "temporary failure in name resolution"},
			Cause{"the name of the registry cannot be resolved",
				"Check the network, DNS and the spelling; without a network, copy the image as a tar file to images/ " +
					"in the data folder."}},
		{[]string{"connection refused", "network is unreachable", "no route to host", "i/o timeout", "deadline exceeded",
			"connection reset"}, Cause{"the registry cannot be reached",
			"Check the network and the registry; without them, copy the image as a tar file to images/ in the data folder."}},
		{[]string{"server gave http response to https client"}, Cause{"the registry speaks HTTP, and HTTPS is required",
			"Allow HTTP for it in containerd/certs.d/REGISTRY/hosts.toml of the data folder."}},
		{[]string{"x509:", "certificate"}, Cause{"the certificate of the registry is not trusted",
			"Add its certificate authority to containerd/certs.d/REGISTRY in the data folder, " +
				"or to the machine's certificates."}},
		{[]string{"no match for platform", "no matching manifest"},
			Cause{"the image exists, but not for this machine's processor",
				"Use an image that is built for this processor."}},
		{[]string{"no space left"}, Cause{"the disk of the node is full",
			"Free space on the disk; unused images are removed when it is nearly full."}},
		{[]string{"not found", "manifest unknown", "name unknown", "notfound"}, Cause{"the registry does not have it",
			"Correct the name or the tag, or push the image; the node tries again by itself, " +
				"at the latest after five minutes."}},
	}, message)
}

// Sandbox returns why a pod's sandbox cannot be created.
func Sandbox(message string) Cause {
	return firstMatch([]pattern{
		{[]string{"cgroup"}, Cause{"the container runtime cannot use the cgroups of the machine",
			"Mount the cgroups below /sys/fs/cgroup and enable their controllers: monopod check says what is missing. " +
				"The node tries again by itself."}},
		{[]string{"no space left"},
			Cause{"the disk of the node is full", "Free space on the disk; the node tries again by itself."}},
		{[]string{"failed to pull image", "failed to get sandbox image", "sandbox image"},
			Cause{"the runtime lacks the image of sandboxes",
				"Restart monopod, which imports it; with a containerd of your own, set its sandbox_image. " +
					"The node tries again by itself."}},
		{[]string{"apparmor", "seccomp", "selinux"},
			Cause{"the kernel refuses its security profile",
				"Correct securityContext, or load the profile on the node; the node tries again by itself."}},
		{[]string{"too many open files", "cannot allocate memory", "resource temporarily unavailable"},
			Cause{"the node has run out of a resource of the kernel",
				"Free memory, or raise the limits of the service (LimitNOFILE, TasksMax); " +
					"the node tries again by itself."}},
		{[]string{"oci runtime", "runc", "shim"}, Cause{"the container runtime cannot start it",
			"Check runc and the kernel with monopod check, and read the message; the node tries again by itself."}},
		{[]string{"cni", "network", "plugin"}, Cause{"its network cannot be set up",
			"Check the pod network: the log of monopod and /readyz?verbose say what fails; the node tries again by itself."}},
	}, message)
}

// Creation returns why the API refuses to create a pod, and the part of the message that matches the cause.
func Creation(message string) (Cause, string) {
	for _, r := range refusals() {
		if m := r.match.FindString(message); m != "" {
			return r.Cause, m
		}
	}
	return Cause{}, ""
}

// refusal is a cause with an expression that matches part of its messages.
type refusal struct {
	match *regexp.Regexp
	Cause
}

func refusals() []refusal {
	is := func(expr, sentence, do string) refusal { return refusal{regexp.MustCompile(expr), Cause{sentence, do}} }
	return []refusal{
		is(`exceeded quota: [^"]+`, "a ResourceQuota of the namespace is used up",
			"Raise the ResourceQuota, lower requests and limits, or delete other pods."),
		is(`failed quota: [^:]+`, "a ResourceQuota requires requests or limits that the template lacks",
			"Set resources.requests and resources.limits in the template, or defaults by a LimitRange."),
		is(`(maximum|minimum) \S+ usage per \S+ is [^,]+`, "a LimitRange of the namespace does not allow its resources",
			"Change the resources of the template, or the LimitRange."),
		is(`violates PodSecurity`, "the namespace's Pod Security level does not allow it",
			"Change the fields that the message names, or the label pod-security.kubernetes.io/enforce of the namespace."),
		is(`error looking up service account`, "its service account does not exist",
			"Create the ServiceAccount, or correct serviceAccountName in the template."),
		is(`admission webhook "[^"]+" denied`, "an admission webhook denies it",
			"Change the template as the message says, or the webhook's configuration."),
		is(`ValidatingAdmissionPolicy '[^']+'.* denied request`, "a ValidatingAdmissionPolicy denies it",
			"Change the template as the message says, or the policy."),
		is(`failed calling webhook.*`, "an admission webhook does not answer",
			"Start the webhook's service, or change failurePolicy or its configuration."),
		is(`no PriorityClass with name`, "its PriorityClass does not exist",
			"Create the PriorityClass, or correct priorityClassName in the template."),
		is(`is being terminated|NamespaceTerminating`, "the namespace is being deleted", "Wait, and use another namespace."),
	}
}

// Scheduling returns all causes in a message of the scheduler about a pod that fits no node. Do may contain the
// placeholders NODE, and NAME for the name of a claim.
func Scheduling(message string) (all []Cause) {
	for _, k := range []struct {
		words string
		Cause
	}{
		{"unbound immediate PersistentVolumeClaims",
			Cause{"a claim is not bound to a volume", "Find out why with: monopod why pvc/NAME"}},
		{"didn't find available persistent volumes",
			Cause{"no volume fits its claims",
				"Create a PersistentVolume that fits, or name a storageClassName that provisions one."}},
		{"bound to non-existent pv",
			Cause{"a claim is bound to a volume that no longer exists",
				"Delete the claim and create it again; its data is gone unless a snapshot has it."}},
		{"PersistentVolume's node affinity",
			Cause{"its volume is on another node", "Run it on the node of the volume, or move the data."}},
		{"exceed max volume count",
			Cause{"the node has as many volumes as it can attach", "Delete pods that use volumes, or add a node."}},
		{"did not have enough free storage",
			Cause{"no node has enough free storage for its claims, as the CSI driver reports",
				"Free storage, request less, or add a node; what is free: kubectl get csistoragecapacities -A"}},
		{"were unschedulable", Cause{"the node is cordoned", "kubectl uncordon NODE"}},
		{"untolerated taint",
			Cause{"the node has a taint that it does not tolerate",
				"Remove the taint (kubectl taint node NODE KEY-), or add a toleration."}},
		{"anti-affinity",
			Cause{"its anti-affinity, or that of a running pod, keeps it away from the node",
				"Use preferredDuringScheduling…, fewer replicas, or more nodes."}},
		{"pod affinity rules",
			Cause{"no node has the pods that its affinity requires", "Start those pods first, or change affinity.podAffinity."}},
		{"topology spread constraints",
			Cause{"its topology spread constraints allow no node", "Raise maxSkew, or use whenUnsatisfiable: ScheduleAnyway."}},
		{"node affinity/selector",
			Cause{"no node has the labels that its nodeSelector or node affinity requires",
				"kubectl label node NODE KEY=VALUE, or change the selector."}},
		{"requested node name", Cause{"the node that it names does not exist", "Correct spec.nodeName."}},
		{"free ports", Cause{"another pod has its host port", "Use another hostPort, or a Service."}},
		{"Too many pods", Cause{"the node runs its maximum number of pods", "Delete pods, or raise --max-pods."}},
	} {
		if strings.Contains(message, k.words) {
			all = append(all, k.Cause)
		}
	}
	return all
}

// End returns why a pod failed as a whole, as the end of a sentence about it, and what to do. Both are empty if the
// pod failed because of its containers.
func End(p *corev1.Pod) (sentence, do string) {
	message, again := words.Clip(p.Status.Message), "create the pod again, because it has no owner that does."
	if metav1.GetControllerOf(p) != nil {
		again = "its owner creates another pod."
	}
	switch reason := p.Status.Reason; {
	case reason == "Evicted":
		return "was evicted from its node: " + message,
			"Free the resource that the message names, or give the pod requests (and limits) that cover its use; " + again
	case reason == "Preempting":
		return "was stopped to make room for a critical pod: " + message,
			"Give the node more room, or the pod a higher priority."
	case reason == "DeadlineExceeded":
		return "ran longer than its activeDeadlineSeconds allow", "Raise activeDeadlineSeconds, or make the work shorter."
	case reason == "Terminated", reason == "NodeShutdown":
		return "was stopped because its node shut down: " + message,
			"Its owner creates a new pod when the node is back; if the pod has no owner, create it again."
	case reason == "NodeLost":
		return "was on a node that stopped responding", "Start the node again."
	case strings.HasPrefix(reason, "OutOf"):
		return "was refused by its node, which has too few free resources: " + message,
			"Lower the requests of the pod, or stop other pods; " + again
	case reason != "":
		return "was refused by its node: " + words.Reason(reason, p.Status.Message), "Change the pod as the message says; " +
			again
	}
	return "", ""
}
