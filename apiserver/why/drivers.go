package why

import (
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"monopod/apiserver/kit/claim"
	"monopod/apiserver/kit/words"
	"monopod/apiserver/why/facts"
)

var (
	notInstalled = regexp.MustCompile(`(\S+) CSI driver is not installed on the node`)
	fromDriver   = regexp.MustCompile(`.*rpc error: code = (\w+) desc = (.+)`)
	usedByPods   = regexp.MustCompile(`Waiting for detach for volume "([^"]+)" Volume is (.+)`)
)

// notMounted explains a pod on a node that waits for a CSI driver to be installed, or for its volume to be attached.
func (f explanation) notMounted(p *corev1.Pod, subject string, evidence []string) *Answer {
	node := p.Spec.NodeName
	for _, v := range f.DriverVolumes(p) {
		if f.Uninstalled(v.Driver, node) {
			return f.uninstalled(v, node, subject, evidence)
		}
		a := f.Attachment(v, node)
		switch {
		case a == nil:
		case a.DeletionTimestamp != nil:
			return found("Wait; the volume is attached again then. If it stays, read the log of the driver's external-attacher.",
				append(evidence, detachError(a)...),
				"%s: its volume %s is still being detached from node %s.", subject, v.Name, node)
		case a.Status.AttachError != nil:
			return found("Fix what the driver reports; its external-attacher tries again by itself.", evidence,
				"%s: the driver %s fails to attach its volume %s to node %s: %s.", subject, v.Driver, v.Name, node,
				answered(a.Status.AttachError.Message))
		case !a.Status.Attached:
			return found("Wait; if it stays, check that the pod with the driver's external-attacher runs, and read its log.",
				evidence, "%s: its volume %s is not attached to node %s yet; the driver %s has not answered for %s.", subject,
				v.Name, node, v.Driver, words.Ago(f.Now.Sub(a.CreationTimestamp.Time)))
		}
	}
	return nil
}

func detachError(a *storagev1.VolumeAttachment) []string {
	if a.Status.DetachError == nil {
		return nil
	}
	return []string{"the driver fails to detach it: " + answered(a.Status.DetachError.Message)}
}

// answered returns what a driver answered: the gRPC code and the text, without what is around it.
func answered(message string) string {
	if m := fromDriver.FindStringSubmatch(message); m != nil {
		message = m[2] + " (" + m[1] + ")"
	}
	return words.Clip(message)
}

// uninstalled explains a volume whose driver the node lacks.
func (f explanation) uninstalled(v facts.DriverVolume, node, subject string, evidence []string) *Answer {
	pods, do := f.registrars(node)
	evidence = append(evidence, pods...)
	if facts.Related[*storagev1.CSIDriver](f.Facts, "", v.Driver) == nil {
		return found(fmt.Sprintf("Install the driver %s in the cluster, or correct the driver's name in the volume; "+
			"the node tries again by itself.", v.Driver), evidence,
			"%s: the driver %s of its volume %s is not installed: nothing in the cluster provides it.", subject, v.Driver,
			v.Name)
	}
	if do == "" {
		do = "Check the DaemonSet of the driver: none of its pods is on the node (kubectl get daemonsets -A)."
	}
	return found(do+" The node tries again by itself.", evidence,
		"%s: the driver %s of its volume %s is not installed on node %s.", subject, v.Driver, v.Name, node)
}

// registrars describes the pods that register drivers with a node, and says which one to look at.
func (f explanation) registrars(node string) (evidence []string, do string) {
	for _, p := range facts.Every[*corev1.Pod](f.Facts) {
		if p.Spec.NodeName != node || !facts.Registers(p) {
			continue
		}
		line, ready := state(p)
		evidence = append(evidence, line)
		if do == "" || !ready {
			do = fmt.Sprintf("Check the pod of the driver: monopod why pod/%s -n %s.", p.Name, p.Namespace)
		}
	}
	return evidence, do
}

// state describes a pod of a driver.
func state(p *corev1.Pod) (line string, ready bool) {
	if c := facts.PodCondition(p, corev1.PodReady); c != nil && c.Status == corev1.ConditionTrue {
		return fmt.Sprintf("pod %s/%s is ready", p.Namespace, p.Name), true
	}
	return fmt.Sprintf("pod %s/%s is not ready", p.Namespace, p.Name), false
}

// mountRefused explains a volume that a CSI driver fails to mount. It returns nil for messages of other origin.
func (f explanation) mountRefused(p *corev1.Pod, subject, message string, evidence []string) *Answer {
	if m := usedByPods.FindStringSubmatch(message); m != nil {
		return found("Delete the pods on the other node, or use a claim with ReadWriteMany; the volume follows by itself.",
			evidence, "%s: its volume %s is attached to another node: %s.", subject, m[1], words.Clip(m[2]))
	}
	volumes := f.DriverVolumes(p)
	if len(volumes) == 0 || !fromDriver.MatchString(message) {
		return nil
	}
	at := volumes[0]
	for _, v := range volumes {
		if strings.Contains(message, `"`+v.Name+`"`) || strings.Contains(message, `"`+v.InPod+`"`) {
			at = v
		}
	}
	return found("Fix what the driver reports: the server, credentials or mount options of the volume. "+
		"The node tries again by itself.", evidence,
		"%s: the driver %s fails to mount its volume: %s.", subject, at.Driver, answered(message))
}

// notUnmounted explains a terminating pod whose driver is gone.
func (f explanation) notUnmounted(p *corev1.Pod, evidence []string) *Answer {
	for _, v := range f.DriverVolumes(p) {
		if !f.Uninstalled(v.Driver, p.Spec.NodeName) {
			continue
		}
		pods, do := f.registrars(p.Spec.NodeName)
		if do == "" {
			do = fmt.Sprintf("Install the driver %s on the node again.", v.Driver)
		}
		return found(do+" The pod ends by itself then.", append(evidence, pods...),
			"Pod %s is being deleted and cannot end: the driver %s, which must unmount its volume %s, is not installed on "+
				"node %s.", p.Name, v.Driver, v.Name, p.Spec.NodeName)
	}
	return nil
}

// external reports whether a class is provisioned by a driver, not by Monopod.
func external(class *storagev1.StorageClass) bool {
	return class != nil && class.Provisioner != claim.NoProvisioner && class.Provisioner != claim.Provisioner
}

// awaitsProvisioner explains a claim that waits for an external provisioner.
func (f explanation) awaitsProvisioner(c *corev1.PersistentVolumeClaim, by string, evidence []string) Answer {
	var pods []*corev1.Pod
	for _, p := range facts.Every[*corev1.Pod](f.Facts) {
		if facts.Provisions(p) {
			pods = append(pods, p)
		}
	}
	do := ""
	for _, p := range pods {
		line, ready := state(p)
		evidence = append(evidence, line)
		if !ready {
			do = fmt.Sprintf("If it is the provisioner's: monopod why pod/%s -n %s", p.Name, p.Namespace)
		}
	}
	switch {
	case len(pods) == 0 && facts.Related[*storagev1.CSIDriver](f.Facts, "", by) == nil:
		return answer(fmt.Sprintf("Install the driver %s, or use another StorageClass.", by), evidence,
			"Claim %s waits for the provisioner %q, which is not installed: no pod in the cluster provisions volumes.",
			c.Name, by)
	case len(pods) == 0:
		return answer("Start the driver's controller, the pod with the container csi-provisioner.", evidence,
			"Claim %s waits for the provisioner %q: no pod in the cluster provisions volumes.", c.Name, by)
	case do == "":
		do = fmt.Sprintf("Read the log of the provisioner: kubectl logs -n %s %s --all-containers", pods[0].Namespace,
			pods[0].Name)
	}
	return answer(do, evidence, "Claim %s waits for the provisioner %q, which has not answered.", c.Name, by)
}

// changing explains a bound claim whose volume is being expanded or modified. It returns nil if it is not.
func (f explanation) changing(c *corev1.PersistentVolumeClaim, events []string) *Answer {
	for _, cond := range c.Status.Conditions {
		events = append(events, fmt.Sprintf("condition %s is %s: %s", cond.Type, cond.Status,
			words.Reason(cond.Reason, cond.Message)))
	}
	is := func(t corev1.PersistentVolumeClaimConditionType) *corev1.PersistentVolumeClaimCondition {
		for i, cond := range c.Status.Conditions {
			if cond.Type == t && cond.Status == corev1.ConditionTrue {
				return &c.Status.Conditions[i]
			}
		}
		return nil
	}
	wants, has := c.Spec.Resources.Requests.Storage(), c.Status.Capacity.Storage()
	if wants.Cmp(*has) > 0 {
		waits := fmt.Sprintf("Claim %s is bound, and its expansion from %s to %s", c.Name, has, wants)
		failed := is(corev1.PersistentVolumeClaimControllerResizeError)
		if failed == nil {
			failed = is(corev1.PersistentVolumeClaimNodeResizeError)
		}
		switch {
		case failed != nil:
			return found(fmt.Sprintf("Fix what the driver reports, or lower the request; it must stay above %s.", has), events,
				"%s fails: %s.", waits, answered(failed.Message))
		case is(corev1.PersistentVolumeClaimFileSystemResizePending) != nil && len(f.users()) == 0:
			return found("Start a pod that uses the claim.", events,
				"%s waits for a pod: its node expands the file system.", waits)
		case is(corev1.PersistentVolumeClaimFileSystemResizePending) != nil:
			return found("Wait; if it stays, read the events of the pod.", events,
				"%s waits until the node of its pod has expanded the file system.", waits)
		case is(corev1.PersistentVolumeClaimResizing) != nil:
			return found("Wait; if it stays, read the log of the driver's external-resizer.", events,
				"%s is being done by its driver.", waits)
		}
		return found("Check that the pod with the driver's external-resizer runs.", events, "%s has not begun.", waits)
	}
	m := c.Status.ModifyVolumeStatus
	if m == nil {
		return nil
	}
	if failed := is(corev1.PersistentVolumeClaimVolumeModifyVolumeError); failed != nil ||
		m.Status == corev1.PersistentVolumeClaimModifyVolumeInfeasible {
		why := "the driver cannot apply it"
		if failed != nil {
			why = answered(failed.Message)
		}
		return found("Fix what the driver reports, or name another VolumeAttributesClass.", events,
			"Claim %s is bound, and the change to the VolumeAttributesClass %q fails: %s.", c.Name,
			m.TargetVolumeAttributesClassName, why)
	}
	return found("Wait; if it stays, check that the class exists and that the driver's external-resizer runs.", events,
		"Claim %s is bound, and waits for the change to the VolumeAttributesClass %q.", c.Name,
		m.TargetVolumeAttributesClassName)
}

// changeFails reports whether a claim's expansion or modification fails.
func changeFails(c *corev1.PersistentVolumeClaim) bool {
	for _, cond := range c.Status.Conditions {
		switch cond.Type {
		case corev1.PersistentVolumeClaimControllerResizeError, corev1.PersistentVolumeClaimNodeResizeError,
			corev1.PersistentVolumeClaimVolumeModifyVolumeError:
			if cond.Status == corev1.ConditionTrue {
				return true
			}
		}
	}
	return false
}
