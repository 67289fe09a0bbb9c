package flowcontrol

import (
	"fmt"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/apiserver/pkg/util/shufflesharding"

	"monopod/apiserver/registry/kind"
)

// maxQueues is the maximum number of queues (upstream: the same).
const maxQueues = 10 * 1000 * 1000

// validateLevel requires that mandatory levels have their fixed spec, apart from the seats of exempt.
func validateLevel(next, _ kind.Object, _ string) (errs field.ErrorList) {
	pl, at := next.(*level), field.NewPath("spec")
	spec := &pl.Spec
	exempt := spec.Type == flowcontrolv1.PriorityLevelEnablementExempt
	if exempt != (pl.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt) {
		errs = append(errs,
			field.Invalid(at.Child("type"), spec.Type, "type must be 'Exempt' if and only if name is 'exempt'"))
	}
	switch {
	case exempt:
		if spec.Limited != nil {
			errs = append(errs, field.Forbidden(at.Child("limited"), "must be nil if the type is not Limited"))
		}
		if spec.Exempt == nil {
			errs = append(errs, field.Required(at.Child("exempt"), "must not be empty if the type is Exempt"))
		} else {
			errs = append(errs,
				shareErrors(spec.Exempt.NominalConcurrencyShares, spec.Exempt.LendablePercent, at.Child("exempt"))...)
		}
	case spec.Type == flowcontrolv1.PriorityLevelEnablementLimited:
		if spec.Exempt != nil {
			errs = append(errs, field.Forbidden(at.Child("exempt"), "must be nil if the type is Limited"))
		}
		if spec.Limited == nil {
			errs = append(errs, field.Required(at.Child("limited"), "must not be empty when type is Limited"))
		} else {
			errs = append(errs, limitedErrors(spec.Limited, at.Child("limited"))...)
		}
	default:
		errs = append(errs, field.NotSupported(at.Child("type"), spec.Type, []flowcontrolv1.PriorityLevelEnablement{
			flowcontrolv1.PriorityLevelEnablementExempt, flowcontrolv1.PriorityLevelEnablementLimited}))
	}
	for _, fixed := range bootstrap.MandatoryPriorityLevelConfigurations {
		want, except := fixed.Spec, ""
		if pl.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt {
			want.Exempt, except = pl.Spec.Exempt, " except the 'spec.exempt' field"
		}
		if fixed.Name == pl.Name && !equality.Semantic.DeepEqual(pl.Spec, want) {
			errs = append(errs, field.Invalid(at, pl.Spec,
				fmt.Sprintf("spec of '%s'%s must equal the fixed value", pl.Name, except)))
		}
	}
	types := make([]string, len(pl.Status.Conditions))
	for i, c := range pl.Status.Conditions {
		types[i] = string(c.Type)
	}
	return append(errs, conditionErrors(types)...)
}

func shareErrors(shares, lendable *int32, at *field.Path) (errs field.ErrorList) {
	if shares != nil && *shares < 0 {
		errs = append(errs, field.Invalid(at.Child("nominalConcurrencyShares"), *shares, "must be a non-negative integer"))
	}
	if lendable != nil && (*lendable < 0 || *lendable > 100) {
		errs = append(errs, field.Invalid(at.Child("lendablePercent"), *lendable, "must be between 0 and 100, inclusive"))
	}
	return errs
}

func limitedErrors(l *flowcontrolv1.LimitedPriorityLevelConfiguration, at *field.Path) field.ErrorList {
	errs := shareErrors(l.NominalConcurrencyShares, l.LendablePercent, at)
	if b := l.BorrowingLimitPercent; b != nil && *b < 0 {
		errs = append(errs,
			field.Invalid(at.Child("borrowingLimitPercent"), *b, "if specified, must be a non-negative integer"))
	}
	response, queuing := at.Child("limitResponse"), at.Child("limitResponse", "queuing")
	switch q := l.LimitResponse.Queuing; l.LimitResponse.Type {
	case flowcontrolv1.LimitResponseTypeReject:
		if q != nil {
			errs = append(errs, field.Forbidden(queuing, "must be nil if limited.limitResponse.type is not Limited"))
		}
	case flowcontrolv1.LimitResponseTypeQueue:
		if q == nil {
			errs = append(errs, field.Required(queuing, "must not be empty if limited.limitResponse.type is Limited"))
		} else {
			errs = append(errs, queueErrors(q, queuing)...)
		}
	default:
		errs = append(errs, field.NotSupported(response.Child("type"), l.LimitResponse.Type,
			[]flowcontrolv1.LimitResponseType{flowcontrolv1.LimitResponseTypeQueue, flowcontrolv1.LimitResponseTypeReject}))
	}
	return errs
}

func queueErrors(q *flowcontrolv1.QueuingConfiguration, at *field.Path) (errs field.ErrorList) {
	bad := func(name string, value int32, format string, args ...any) {
		errs = append(errs, field.Invalid(at.Child(name), value, fmt.Sprintf(format, args...)))
	}
	if q.QueueLengthLimit <= 0 {
		bad("queueLengthLimit", q.QueueLengthLimit, "must be positive")
	}
	if q.Queues <= 0 {
		bad("queues", q.Queues, "must be positive")
	} else if q.Queues > maxQueues {
		bad("queues", q.Queues, "must not be greater than %d", maxQueues)
	}
	switch {
	case q.HandSize <= 0:
		bad("handSize", q.HandSize, "must be positive")
	case q.HandSize > q.Queues:
		bad("handSize", q.HandSize, "should not be greater than queues (%d)", q.Queues)
	default:
		if bits := shufflesharding.RequiredEntropyBits(int(q.Queues), int(q.HandSize)); bits > shufflesharding.MaxHashBits {
			bad("handSize", q.HandSize, "required entropy bits of deckSize %d and handSize %d should not be greater than %d",
				q.Queues, q.HandSize, shufflesharding.MaxHashBits)
		}
	}
	return errs
}
