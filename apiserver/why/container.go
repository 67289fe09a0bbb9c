package why

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/kit/words"
	"monopod/apiserver/why/facts"
)

// container is a container of a pod with its status.
type container struct {
	explanation
	pod    *corev1.Pod
	spec   corev1.Container
	status corev1.ContainerStatus
	init   bool
}

// String returns the subject of a sentence about the container.
func (c container) String() string {
	noun := "Container"
	if c.init {
		noun = "Init container"
	}
	return fmt.Sprintf("%s %s of pod %s", noun, c.spec.Name, c.pod.Name)
}

// failing explains the first container that does not run as it should, in the order in which containers start.
func (f explanation) failing(p *corev1.Pod) *Answer {
	for _, c := range f.containersOf(p) {
		if a := c.why(); a != nil {
			return a
		}
	}
	return nil
}

// containersOf returns the containers that have a status, init containers first.
func (f explanation) containersOf(p *corev1.Pod) (all []container) {
	add := func(specs []corev1.Container, statuses []corev1.ContainerStatus, init bool) {
		for _, spec := range specs {
			if i := slices.IndexFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == spec.Name }); i >= 0 {
				all = append(all, container{f, p, spec, statuses[i], init})
			}
		}
	}
	add(p.Spec.InitContainers, p.Status.InitContainerStatuses, true)
	add(p.Spec.Containers, p.Status.ContainerStatuses, false)
	return all
}

// why explains the container's state. It returns nil if the container runs as it should, or waits for others to start.
func (c container) why() *Answer {
	s := c.status.State
	last := c.status.LastTerminationState.Terminated
	switch {
	case s.Waiting != nil && s.Waiting.Reason == "CrashLoopBackOff" && last != nil:
		return c.crashed(last)
	case s.Waiting != nil &&
		slices.Contains(
			[]string{"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError",
				"RegistryUnavailable"}, s.Waiting.Reason):
		return c.noImage(s.Waiting.Reason, s.Waiting.Message)
	case s.Waiting != nil && s.Waiting.Reason == "CreateContainerConfigError":
		return c.misconfigured(s.Waiting.Message)
	case s.Waiting != nil && slices.Contains([]string{"CreateContainerError", "RunContainerError"}, s.Waiting.Reason):
		return c.notStarted(s.Waiting.Message)
	case s.Waiting != nil && s.Waiting.Reason == "PostStartHookError":
		return c.found("Fix the command or the handler in lifecycle.postStart; the container is stopped when the hook fails.",
			[]string{words.Clip(s.Waiting.Message)}, "has a postStart hook that fails: %s", words.Clip(s.Waiting.Message))
	case s.Waiting != nil && s.Waiting.Reason != "" &&
		!slices.Contains([]string{"ContainerCreating", "PodInitializing"}, s.Waiting.Reason):
		return c.found("Change the pod as the message says.", c.events(), "waits: %s",
			words.Reason(s.Waiting.Reason, s.Waiting.Message))
	case s.Terminated != nil && c.failed(s.Terminated):
		return c.crashed(s.Terminated)
	case s.Running != nil && !c.status.Ready && (!c.init || sidecar(c.spec)):
		return c.unready(last)
	}
	return nil
}

// failed reports whether the container ended with an exit code other than 0, or ended although it should keep running.
func (c container) failed(t *corev1.ContainerStateTerminated) bool {
	return t.ExitCode != 0 || !c.init && c.pod.Spec.RestartPolicy == corev1.RestartPolicyAlways
}

func sidecar(c corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

func (c container) found(do string, evidence []string, format string, args ...any) *Answer {
	return found(do, evidence, "%s %s.", c, fmt.Sprintf(format, args...))
}

// events returns the warnings about the pod, as evidence.
func (c container) events() []string { return c.EventLines(c.Warnings(c.pod)) }

// crashed explains a container that failed.
func (c container) crashed(t *corev1.ContainerStateTerminated) *Answer {
	evidence := []string{fmt.Sprintf("last end%s: %s", c.since(t.FinishedAt), words.End(t))}
	if c.status.RestartCount > 0 {
		evidence = append(evidence, fmt.Sprintf("restarts: %d", c.status.RestartCount))
	}
	if w := c.status.State.Waiting; w != nil {
		evidence = append(evidence, words.Clip(w.Message))
	}
	lines := c.LogLines(c.pod, c.spec.Name)
	if len(lines) == 0 && t.Message != "" {
		lines = []string{words.Clip(words.Plain(t.Message))}
	}
	for _, line := range lines {
		evidence = append(evidence, "log: "+line)
	}
	if t.Reason == "StartError" || t.Reason == "ContainerCannotRun" {
		return c.notStarted(t.Message)
	}
	if a := c.unhealthy(t, evidence); a != nil {
		return a
	}
	if t.Reason == "OOMKilled" {
		limit := "the node has no memory left"
		if q, ok := c.spec.Resources.Limits[corev1.ResourceMemory]; ok {
			limit = "its limit is " + q.String()
		}
		return c.found("Raise resources.limits.memory of the container, or make the program use less.", evidence,
			"is killed because it uses too much memory (OOMKilled, exit code %d): %s", t.ExitCode, limit)
	}
	lastLine := ""
	if len(lines) > 0 {
		lastLine = fmt.Sprintf("; its last line is %q", lines[len(lines)-1])
	}
	if cause := c.logCause(lines); cause.sentence != "" {
		return c.found(cause.do, append(evidence, cause.evidence...), "%s%s: %s", words.Ends(t), lastLine, cause.sentence)
	}
	do, limits := c.droppedByPolicy(lines)
	return c.found(do+c.remedy(t), append(evidence, limits...), "%s%s", words.Ends(t), lastLine)
}

// remedy returns what to do about a container that ended.
func (c container) remedy(t *corev1.ContainerStateTerminated) string {
	logs := fmt.Sprintf("Read the whole log: kubectl logs %s -c %s --previous", c.pod.Name, c.spec.Name)
	switch {
	case t.Reason == "Unknown" && t.ExitCode == 255:
		return "It starts again by itself; if it does not, read the events: kubectl describe pod " + c.pod.Name
	case t.ExitCode == 0:
		return "Let the program run in the foreground, or use a Job, or restartPolicy: OnFailure."
	case t.ExitCode == 126:
		return "Exit code 126 means that the command is not executable: check its mode and command. " + logs
	case t.ExitCode == 127:
		return "Exit code 127 means that a shell did not find a command: check the spelling, PATH and the image. " + logs
	case words.Signal(t) == syscall.SIGKILL:
		return "Something killed the process: its own parent, a runtime that ended, or the kernel. " + logs
	case words.Signal(t) == syscall.SIGSEGV, words.Signal(t) == syscall.SIGABRT, words.Signal(t) == syscall.SIGBUS,
		words.Signal(t) == syscall.SIGILL:
		return "The program has a bug, or was built for another processor. " + logs
	}
	return "Fix what the log reports, in the program, its arguments or its environment. " + logs
}

// unhealthy explains a container that was killed because of its liveness or startup probe. It returns nil if neither
// probe is the cause. The termination message names the probe, unless the program has written its own message: then
// only the Event names it.
func (c container) unhealthy(t *corev1.ContainerStateTerminated, evidence []string) *Answer {
	for _, kind := range []string{"Liveness", "Startup"} {
		field := strings.ToLower(kind) + "Probe"
		message := fmt.Sprintf("Container %s failed %s probe", c.spec.Name, strings.ToLower(kind))
		killed := c.Last(c.pod, message, "Killing")
		if !strings.HasPrefix(t.Message, message) && (killed == nil || facts.LastOf(killed).Before(t.StartedAt.Time)) {
			continue
		}
		failure := c.Last(c.pod, kind+" probe", "Unhealthy")
		probe := c.spec.LivenessProbe
		if kind == "Startup" {
			probe = c.spec.StartupProbe
		}
		text := words.Handler(probe)
		if failure != nil {
			text, evidence = words.Probe(failure.Message), append(evidence, c.EventLine(failure))
		}
		do := "Make the program answer, or change " + field +
			" (path, port, timeoutSeconds, failureThreshold, initialDelaySeconds)."
		return c.found(do, evidence, "is restarted because its %s probe fails: %s", strings.ToLower(kind), text)
	}
	return nil
}

// unready explains a container that runs and is not ready.
func (c container) unready(last *corev1.ContainerStateTerminated) *Answer {
	if started := c.status.Started; started != nil && !*started && c.spec.StartupProbe != nil {
		text, evidence := c.probeFailure("Startup")
		if last != nil {
			if a := c.unhealthy(last, evidence); a != nil {
				return a
			}
		}
		return c.found("Wait, make the program answer sooner, or raise failureThreshold of startupProbe.", evidence,
			"runs, and its startup probe has not succeeded yet%s", text)
	}
	if last != nil {
		if a := c.unhealthy(last, []string{"last end: " + words.End(last)}); a != nil {
			return a
		}
	}
	if c.spec.ReadinessProbe == nil {
		return nil
	}
	text, evidence := c.probeFailure("Readiness")
	return c.found(
		"Make the program answer as readinessProbe expects, or change the probe; Services send it nothing until then.",
		evidence, "runs, but is not ready: its readiness probe has not succeeded%s", text)
}

// probeFailure returns the last failure of a probe.
func (c container) probeFailure(kind string) (text string, evidence []string) {
	e := c.Last(c.pod, kind+" probe", "Unhealthy")
	if e == nil {
		return "", nil
	}
	return ": " + words.Probe(e.Message), []string{c.EventLine(e)}
}

// notStarted explains a container whose process could not be started.
func (c container) notStarted(message string) *Answer {
	command := strings.Join(append(slices.Clone(c.spec.Command), c.spec.Args...), " ")
	if command == "" {
		command = "the image's command"
	}
	evidence := append([]string{words.Clip(message)}, c.events()...)
	m := strings.ToLower(message)
	switch {
	case strings.Contains(m, "executable file not found"), strings.Contains(m, "no such file or directory") &&
		strings.Contains(m, "exec"), strings.Contains(m, "no such command"):
		return c.found("Correct command and args, or use an image that contains the program.", evidence,
			"does not start: the image has no program %q", command)
	case strings.Contains(m, "permission denied"):
		return c.found("Make the file executable in the image, or run it with another user (securityContext.runAsUser).",
			evidence, "does not start: it may not execute %q (permission denied)", command)
	case strings.Contains(m, "exec format error"):
		return c.found("Use an image for this machine's processor, or begin the script with #!.", evidence,
			"does not start: %q is not a program for this processor", command)
	case strings.Contains(m, "mount"):
		return c.found("Check volumeMounts: paths, subPath and what the volumes contain.", evidence,
			"does not start: a mount fails: %s", words.Clip(message))
	}
	return c.found("Change the container as the message says.", evidence, "does not start: %s", words.Clip(message))
}

var missingKey = regexp.MustCompile(`couldn't find key (\S+) in (ConfigMap|Secret) [^/]+/(\S+)`)

// misconfigured explains a container that fails before it is created, because of its environment or security context.
func (c container) misconfigured(message string) *Answer {
	if a := missing(c.String()+" does not start", message, nil); a != nil {
		return a
	}
	if m := missingKey.FindStringSubmatch(message); m != nil {
		return c.found(fmt.Sprintf("Add the key %s to %s %s, or correct env; it starts by itself then.", m[1], m[2], m[3]),
			[]string{words.Clip(message)}, "does not start: %s %s has no key %s", m[2], m[3], m[1])
	}
	if strings.Contains(message, "runAsNonRoot") || strings.Contains(message, "non-root") ||
		strings.Contains(message, "non-numeric user") {
		return c.found("Set securityContext.runAsUser to a number that is not 0, or use an image with such a user.",
			[]string{words.Clip(message)},
			"does not start: runAsNonRoot is set, and the image runs as root or its user is not known")
	}
	return c.found("Change the container as the message says.", append([]string{words.Clip(message)}, c.events()...),
		"does not start: %s", words.Clip(message))
}

// starting explains a pod whose containers are being created or pulled.
func (f explanation) starting(p *corev1.Pod) *Answer {
	if p.Status.Phase != corev1.PodPending {
		return nil
	}
	if e := f.Last(p, "", "Pulling", "Pulled"); e != nil && e.Reason == "Pulling" {
		return found("Wait; the speed is that of the network and the registry.", []string{f.EventLine(e)},
			"Pod %s is starting: the node has been pulling its image for %s.", p.Name, words.Ago(f.Now.Sub(facts.LastOf(e))))
	}
	for _, c := range f.containersOf(p) {
		if c.init && c.status.State.Running != nil && !sidecar(c.spec) {
			lastLine, evidence := "", []string(nil)
			for _, line := range c.LogLines(p, c.spec.Name) {
				evidence, lastLine = append(evidence, "log: "+line), fmt.Sprintf("; its last line is %q", line)
			}
			cause := c.logCause(c.LogLines(p, c.spec.Name))
			if cause.sentence != "" {
				lastLine += ": " + cause.sentence
				cause.do += " "
			}
			return c.found(cause.do+"Wait until it ends; its log says how far it is: kubectl logs "+p.Name+" -c "+c.spec.Name,
				append(evidence, cause.evidence...),
				"has been running for %s, and the other containers start when it has ended%s",
				words.Ago(f.Now.Sub(c.status.State.Running.StartedAt.Time)), lastLine)
		}
	}
	return nil
}
