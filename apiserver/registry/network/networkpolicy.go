package network

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
)

func networkPolicyResource() kind.Resource {
	return kind.Resource{
		GVR:        client.NetworkPolicies,
		Kind:       "NetworkPolicy",
		Namespaced: true,
		ShortNames: []string{"netpol"},
		New:        func() kind.Object { return new(networkingv1.NetworkPolicy) },
		Default:    networkPolicyDefault,
		Prepare: kind.SpecOnly(func(obj kind.Object) *networkingv1.NetworkPolicySpec {
			return &obj.(*networkingv1.NetworkPolicy).Spec
		}, networkPolicyDefault),
		Validate: networkPolicyValidate,
		Warnings: func(next, _ kind.Object) []string {
			var warnings []string
			for _, b := range policyBlocks(next.(*networkingv1.NetworkPolicy)) {
				warnings = append(warnings, validation.GetWarningsForCIDR(b.path.Child("cidr"), b.block.CIDR)...)
				for i, except := range b.block.Except {
					warnings = append(warnings, validation.GetWarningsForCIDR(b.path.Child("except").Index(i), except)...)
				}
			}
			return warnings
		},
		Columns: []table.Column{
			table.Name(),
			table.Text("Pod-Selector", "Selector of the pods that the policy applies to.",
				func(p *networkingv1.NetworkPolicy) string {
					return metav1.FormatLabelSelector(&p.Spec.PodSelector)
				}),
			table.Age(),
		},
	}
}

// networkPolicyDefault sets the protocols of ports. The default of policyTypes is Ingress, and Egress if there are
// egress rules.
func networkPolicyDefault(obj kind.Object) {
	spec := &obj.(*networkingv1.NetworkPolicy).Spec
	for i := range spec.Ingress {
		policyPortsDefault(spec.Ingress[i].Ports)
	}
	for i := range spec.Egress {
		policyPortsDefault(spec.Egress[i].Ports)
	}
	if len(spec.PolicyTypes) > 0 {
		return
	}
	spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	if len(spec.Egress) > 0 {
		spec.PolicyTypes = append(spec.PolicyTypes, networkingv1.PolicyTypeEgress)
	}
}

func policyPortsDefault(ports []networkingv1.NetworkPolicyPort) {
	for i := range ports {
		kind.SetIfNil(&ports[i].Protocol, corev1.ProtocolTCP)
	}
}

func networkPolicyValidate(next, cur kind.Object, _ string) field.ErrorList {
	var known []string
	if cur != nil {
		for _, block := range policyBlocks(cur.(*networkingv1.NetworkPolicy)) {
			known = append(append(known, block.block.CIDR), block.block.Except...)
		}
	}
	spec, path := &next.(*networkingv1.NetworkPolicy).Spec, field.NewPath("spec")
	errs := check.LabelSelector(path.Child("podSelector"), &spec.PodSelector)
	for i, rule := range spec.Ingress {
		errs = append(errs, policyRule(rule.Ports, rule.From, path.Child("ingress").Index(i), "from", known)...)
	}
	for i, rule := range spec.Egress {
		errs = append(errs, policyRule(rule.Ports, rule.To, path.Child("egress").Index(i), "to", known)...)
	}
	at := path.Child("policyTypes")
	if len(spec.PolicyTypes) > 2 {
		return append(errs, field.Invalid(at, &spec.PolicyTypes, "may not specify more than two policyTypes"))
	}
	for i, t := range spec.PolicyTypes {
		errs = append(errs, oneOf(at.Index(i), t, networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress)...)
	}
	return errs
}

func policyRule(ports []networkingv1.NetworkPolicyPort, peers []networkingv1.NetworkPolicyPeer, path *field.Path,
	direction string, known []string) field.ErrorList {
	var errs field.ErrorList
	for i := range ports {
		errs = append(errs, policyPort(&ports[i], path.Child("ports").Index(i))...)
	}
	for i := range peers {
		peer, at := &peers[i], path.Child(direction).Index(i)
		pods := peer.PodSelector != nil || peer.NamespaceSelector != nil
		if peer.PodSelector != nil {
			errs = append(errs, check.LabelSelector(at.Child("podSelector"), peer.PodSelector)...)
		}
		if peer.NamespaceSelector != nil {
			errs = append(errs, check.LabelSelector(at.Child("namespaceSelector"), peer.NamespaceSelector)...)
		}
		if peer.IPBlock != nil {
			errs = append(errs, ipBlock(peer.IPBlock, at.Child("ipBlock"), known)...)
		}
		switch {
		case pods && peer.IPBlock != nil:
			errs = append(errs, field.Forbidden(at, "may not specify both ipBlock and another peer"))
		case !pods && peer.IPBlock == nil:
			errs = append(errs, field.Required(at, "must specify a peer"))
		}
	}
	return errs
}

// oneOf requires that value is one of allowed. The error lists them in the given order; upstream sorts those of other
// kinds.
func oneOf[S ~string](path *field.Path, value S, allowed ...S) field.ErrorList {
	if slices.Contains(allowed, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, allowed)}
}

func policyPort(p *networkingv1.NetworkPolicyPort, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if p.Protocol != nil {
		errs = oneOf(path.Child("protocol"), *p.Protocol, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
	}
	end := path.Child("endPort")
	switch {
	case p.Port == nil && p.EndPort != nil:
		return append(errs, field.Invalid(end, *p.EndPort, "may not be specified when `port` is not specified"))
	case p.Port == nil:
		return errs
	case p.Port.Type == intstr.String && p.EndPort != nil:
		errs = append(errs, field.Invalid(end, *p.EndPort, "may not be specified when `port` is non-numeric"))
	}
	errs = append(errs, check.PortOrName(path.Child("port"), *p.Port)...)
	if p.Port.Type == intstr.String || p.EndPort == nil {
		return errs
	}
	if *p.EndPort < p.Port.IntVal {
		errs = append(errs, field.Invalid(end, *p.EndPort, "must be greater than or equal to `port`"))
	}
	return append(errs, check.Port(end, *p.EndPort)...)
}

// ipBlock checks an address range and its exceptions, which must be strict subsets.
func ipBlock(block *networkingv1.IPBlock, path *field.Path, known []string) field.ErrorList {
	at := path.Child("cidr")
	if block.CIDR == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	errs := check.CIDR(at, block.CIDR, known)
	_, outer, err := netutils.ParseCIDRSloppy(block.CIDR)
	if err != nil {
		return errs
	}
	for i, except := range block.Except {
		at := path.Child("except").Index(i)
		errs = append(errs, check.CIDR(at, except, known)...)
		_, inner, err := netutils.ParseCIDRSloppy(except)
		if err != nil {
			continue
		}
		outerBits, _ := outer.Mask.Size()
		innerBits, _ := inner.Mask.Size()
		if !outer.Contains(inner.IP) || outerBits >= innerBits {
			errs = append(errs, field.Invalid(at, except, "must be a strict subset of `cidr`"))
		}
	}
	return errs
}

// policyBlock is an address range with its path.
type policyBlock struct {
	block *networkingv1.IPBlock
	path  *field.Path
}

func policyBlocks(policy *networkingv1.NetworkPolicy) []policyBlock {
	var all []policyBlock
	add := func(peers []networkingv1.NetworkPolicyPeer, path *field.Path) {
		for i, peer := range peers {
			if peer.IPBlock != nil {
				all = append(all, policyBlock{peer.IPBlock, path.Index(i).Child("ipBlock")})
			}
		}
	}
	for i, rule := range policy.Spec.Ingress {
		add(rule.From, field.NewPath("spec", "ingress").Index(i).Child("from"))
	}
	for i, rule := range policy.Spec.Egress {
		add(rule.To, field.NewPath("spec", "egress").Index(i).Child("to"))
	}
	return all
}
