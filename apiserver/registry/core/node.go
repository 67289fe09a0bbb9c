package core

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
	"monopod/store"
)

func nodeResource() kind.Resource {
	return kind.Resource{
		GVR:          client.Nodes,
		Kind:         "Node",
		ShortNames:   []string{"no"},
		Subresources: append(kind.Parts("status"), kind.Proxy("Node")),
		New:          func() kind.Object { return new(corev1.Node) },
		ValidName:    apivalidation.NameIsDNSSubdomain,
		Default:      nodeDefault,
		Prepare:      nodePrepare,
		Validate:     nodeValidate,
		Fields: func(obj kind.Object) fields.Set {
			return fields.Set{"spec.unschedulable": strconv.FormatBool(obj.(*corev1.Node).Spec.Unschedulable)}
		},
		Columns:    nodeColumns(),
		Durability: nodeDurability,
	}
}

func nodeColumns() []table.Column {
	return []table.Column{
		table.Name(),
		table.Text("Status", "Ready, NotReady or Unknown; SchedulingDisabled if cordoned.", nodeStatus),
		table.Text("Roles", "Roles from the labels node-role.kubernetes.io.", nodeRoles),
		table.Age(),
		table.Text("Version", "The agent's version.",
			func(n *corev1.Node) string { return n.Status.NodeInfo.KubeletVersion }),
		table.Text("Internal-IP", "First internal address.", nodeAddress(corev1.NodeInternalIP)).Wide(),
		table.Text("External-IP", "First external address.", nodeAddress(corev1.NodeExternalIP)).Wide(),
		nodeInfo("OS-Image", func(i *corev1.NodeSystemInfo) string { return i.OSImage }),
		nodeInfo("Kernel-Version", func(i *corev1.NodeSystemInfo) string { return i.KernelVersion }),
		nodeInfo("Container-Runtime", func(i *corev1.NodeSystemInfo) string { return i.ContainerRuntimeVersion }),
	}
}

func nodeInfo(name string, get func(*corev1.NodeSystemInfo) string) table.Column {
	return table.Text(name, "As reported by the node.", func(n *corev1.Node) string {
		return table.OrUnknown(get(&n.Status.NodeInfo))
	}).Wide()
}

// nodeStatus returns Ready, NotReady or Unknown, with SchedulingDisabled for a cordoned node.
func nodeStatus(node *corev1.Node) string {
	status := "Unknown"
	for _, c := range node.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		if status = "NotReady"; c.Status == corev1.ConditionTrue {
			status = "Ready"
		}
	}
	if node.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	return status
}

// nodeRoles returns the roles from the labels node-role.kubernetes.io/<role> and kubernetes.io/role=<role>.
func nodeRoles(node *corev1.Node) string {
	roles := map[string]bool{}
	for key, value := range node.Labels {
		role, ok := strings.CutPrefix(key, "node-role.kubernetes.io/")
		if key == "kubernetes.io/role" {
			role, ok = value, true
		}
		if ok && role != "" {
			roles[role] = true
		}
	}
	return table.OrNone(strings.Join(slices.Sorted(maps.Keys(roles)), ","))
}

func nodeAddress(kind corev1.NodeAddressType) func(*corev1.Node) string {
	return func(node *corev1.Node) string {
		for _, a := range node.Status.Addresses {
			if a.Type == kind {
				return a.Address
			}
		}
		return table.None
	}
}

// nodeDefault sets podCIDR and podCIDRs from each other. The default of allocatable is the capacity.
func nodeDefault(obj kind.Object) {
	node := obj.(*corev1.Node)
	switch {
	case node.Spec.PodCIDR != "" && len(node.Spec.PodCIDRs) == 0:
		node.Spec.PodCIDRs = []string{node.Spec.PodCIDR}
	case node.Spec.PodCIDR == "" && len(node.Spec.PodCIDRs) > 0:
		node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
	}
	if node.Status.Allocatable == nil && len(node.Status.Capacity) > 0 {
		node.Status.Allocatable = node.Status.Capacity.DeepCopy()
	}
}

// nodePrepare keeps the status of a new node, because agents register with it.
func nodePrepare(next, cur kind.Object, subresource string) {
	if cur == nil {
		return
	}
	node, old := next.(*corev1.Node), cur.(*corev1.Node)
	if subresource == "status" {
		node.Spec = *old.Spec.DeepCopy()
	} else {
		node.Status = *old.Status.DeepCopy()
	}
}

// nodeDurability makes heartbeats volatile, to avoid disk writes.
func nodeDurability(cur, next kind.Object) store.Durability {
	if cur == nil || next == nil {
		return store.Durable
	}
	if equality.Semantic.DeepEqual(withoutHeartbeat(cur.(*corev1.Node)), withoutHeartbeat(next.(*corev1.Node))) {
		return store.Volatile
	}
	return store.Durable
}

// withoutHeartbeat returns a shallow copy without the fields that a heartbeat changes.
func withoutHeartbeat(node *corev1.Node) *corev1.Node {
	still := *node
	still.ResourceVersion, still.ManagedFields = "", nil
	still.Status.Conditions = slices.Clone(node.Status.Conditions)
	for i := range still.Status.Conditions {
		still.Status.Conditions[i].LastHeartbeatTime = metav1.Time{}
	}
	return &still
}

func nodeValidate(next, cur kind.Object, _ string) field.ErrorList {
	node := next.(*corev1.Node)
	spec := field.NewPath("spec")
	var errs field.ErrorList
	taints := map[corev1.Taint]bool{}
	for i, t := range node.Spec.Taints {
		at, id := spec.Child("taints").Index(i), corev1.Taint{Key: t.Key, Effect: t.Effect}
		errs = slices.Concat(errs,
			metavalidation.ValidateLabelName(t.Key, at.Child("key")),
			check.Invalid(at.Child("value"), t.Value, validation.IsValidLabelValue(t.Value)),
			check.OneOf(at.Child("effect"), t.Effect, check.TaintEffects()...))
		if taints[id] {
			errs = append(errs, field.Duplicate(at, t.Key+":"+string(t.Effect)))
		}
		taints[id] = true
	}
	list := spec.Child("podCIDRs")
	for i, cidr := range node.Spec.PodCIDRs {
		errs = append(errs, validation.IsValidCIDR(list.Index(i), cidr)...)
	}
	if len(node.Spec.PodCIDRs) > 2 {
		errs = append(errs, field.Invalid(list, node.Spec.PodCIDRs, "may have one address range for each IP family"))
	}
	if len(node.Spec.PodCIDRs) > 0 && node.Spec.PodCIDRs[0] != node.Spec.PodCIDR {
		errs = append(errs, field.Invalid(list.Index(0), node.Spec.PodCIDRs[0], "must match `podCIDR`"))
	}
	for i, a := range node.Status.Addresses {
		if slices.Contains(node.Status.Addresses[:i], a) {
			errs = append(errs, field.Duplicate(field.NewPath("status", "addresses").Index(i), a))
		}
	}
	errs = append(errs, nodeAmounts(node.Status.Capacity, field.NewPath("status", "capacity"))...)
	errs = append(errs, nodeAmounts(node.Status.Allocatable, field.NewPath("status", "allocatable"))...)
	if cur == nil {
		return errs
	}
	old := &cur.(*corev1.Node).Spec // podCIDRs and providerID are immutable once set
	if len(old.PodCIDRs) > 0 && !slices.Equal(node.Spec.PodCIDRs, old.PodCIDRs) {
		errs = append(errs, field.Forbidden(list, "node updates may not change podCIDR except from \"\" to valid"))
	}
	if old.ProviderID != "" && node.Spec.ProviderID != old.ProviderID {
		errs = append(errs,
			field.Forbidden(spec.Child("providerID"), "node updates may not change providerID except from \"\" to valid"))
	}
	return errs
}

func nodeAmounts(amounts corev1.ResourceList, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		errs = append(errs, check.ResourceName(path.Key(string(name)), name)...)
		errs = append(errs, check.Amount(path.Key(string(name)), name, amounts[name])...)
	}
	return errs
}
