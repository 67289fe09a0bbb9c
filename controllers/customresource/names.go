package customresource

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// usedNames contains the names that other definitions of a group use.
type usedNames struct{ resources, kinds []string }

// usedByOthers returns the accepted names of the other definitions in the group of def.
func usedByOthers(def *definition, all []*definition) (t usedNames) {
	for _, other := range all {
		if other.Spec.Group != def.Spec.Group || other.Name == def.Name {
			continue
		}
		names := &other.Status.AcceptedNames
		t.resources = append(append(t.resources, names.Plural, names.Singular), names.ShortNames...)
		t.kinds = append(t.kinds, names.Kind, names.ListKind)
	}
	return t
}

// name returns wanted if it is already accepted or free; otherwise accepted, and an error.
func name(wanted, accepted string, taken []string) (string, error) {
	if wanted != accepted && slices.Contains(taken, wanted) {
		return accepted, fmt.Errorf("%q is already in use", wanted)
	}
	return wanted, nil
}

// accept sets in the status of def the names that no other definition uses, and the conditions NamesAccepted and
// Established (upstream: the naming condition controller). It reports whether the status has changed.
func accept(def *apiextensionsv1.CustomResourceDefinition, t usedNames) bool {
	wanted, names := def.Spec.Names, def.Status.AcceptedNames
	cond := apiextensionsv1.CustomResourceDefinitionCondition{Type: apiextensionsv1.NamesAccepted,
		Status: apiextensionsv1.ConditionTrue, Reason: "NoConflicts", Message: "no conflicts found"}
	conflict := func(reason string, err error) {
		if err != nil {
			cond.Status, cond.Reason, cond.Message = apiextensionsv1.ConditionFalse, reason, err.Error()
		}
	}
	var err error
	names.Plural, err = name(wanted.Plural, names.Plural, t.resources)
	conflict("PluralConflict", err)
	names.Singular, err = name(wanted.Singular, names.Singular, t.resources)
	conflict("SingularConflict", err)
	names.ShortNames, err = shortNames(wanted.ShortNames, names.ShortNames, t.resources)
	conflict("ShortNamesConflict", err)
	names.Kind, err = name(wanted.Kind, names.Kind, t.kinds)
	conflict("KindConflict", err)
	names.ListKind, err = name(wanted.ListKind, names.ListKind, t.kinds)
	conflict("ListKindConflict", err)
	names.Categories = wanted.Categories

	before := def.DeepCopy()
	def.Status.AcceptedNames = names
	apihelpers.SetCRDCondition(def, cond)
	if !apihelpers.IsCRDConditionTrue(def, apiextensionsv1.Established) {
		established := apiextensionsv1.CustomResourceDefinitionCondition{
			Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionFalse,
			Reason: "NotAccepted", Message: "not all names are accepted"}
		if cond.Status == apiextensionsv1.ConditionTrue {
			established.Reason, established.Message = "Installing", "the initial names have been accepted"
		}
		apihelpers.SetCRDCondition(def, established)
	}
	return !equality.Semantic.DeepEqual(before.Status, def.Status)
}

// shortNames returns wanted if each of them is already accepted or free; otherwise accepted, and an error.
func shortNames(wanted, accepted, taken []string) ([]string, error) {
	var conflicts []string
	for _, short := range wanted {
		if _, err := name(short, "", taken); err != nil && !slices.Contains(accepted, short) {
			conflicts = append(conflicts, err.Error())
		}
	}
	switch len(conflicts) {
	case 0:
		return wanted, nil
	case 1:
		return accepted, fmt.Errorf("%s", conflicts[0])
	}
	return accepted, fmt.Errorf("[%s]", strings.Join(conflicts, ", "))
}

// approve sets the condition that definitions in Kubernetes' own groups need (upstream: the API approval controller).
func approve(def *apiextensionsv1.CustomResourceDefinition) bool {
	if !apihelpers.IsProtectedCommunityGroup(def.Spec.Group) {
		return false
	}
	state, reason := apihelpers.GetAPIApprovalState(def.Annotations)
	cond := apiextensionsv1.CustomResourceDefinitionCondition{
		Type:   apiextensionsv1.KubernetesAPIApprovalPolicyConformant,
		Status: apiextensionsv1.ConditionFalse, Message: reason}
	switch state {
	case apihelpers.APIApprovalInvalid:
		cond.Reason = "InvalidAnnotation"
	case apihelpers.APIApprovalMissing:
		cond.Reason = "MissingAnnotation"
	case apihelpers.APIApproved:
		cond.Status, cond.Reason = apiextensionsv1.ConditionTrue, "ApprovedAnnotation"
	case apihelpers.APIApprovalBypassed:
		cond.Reason = "UnapprovedAnnotation"
	}
	if apihelpers.IsCRDConditionEquivalent(&cond, apihelpers.FindCRDCondition(def, cond.Type)) {
		return false
	}
	apihelpers.SetCRDCondition(def, cond)
	return true
}
