// Package flowcontrol contains the kinds of API Priority and Fairness. Package apiserver/flow implements it.
package flowcontrol

import (
	"cmp"
	"strconv"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/utils/ptr"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
)

type (
	flowSchema = flowcontrolv1.FlowSchema
	level      = flowcontrolv1.PriorityLevelConfiguration
)

// Upstream's defaults (pkg/apis/flowcontrol/v1).
const (
	defaultPrecedence  = 1000
	defaultShares      = 30
	defaultQueues      = 64
	defaultHandSize    = 8
	defaultQueueLength = 50
)

// Resources returns the kinds of this package, in the order of discovery.
func Resources() []kind.Resource {
	return []kind.Resource{{
		GVR:          client.FlowSchemas,
		Kind:         "FlowSchema",
		Subresources: kind.Parts("status"),
		New:          func() kind.Object { return new(flowSchema) },
		Default:      defaultSchema,
		Prepare: kind.SpecAndStatus(func(obj kind.Object) (*flowcontrolv1.FlowSchemaSpec, *flowcontrolv1.FlowSchemaStatus) {
			fs := obj.(*flowSchema)
			return &fs.Spec, &fs.Status
		}, defaultSchema),
		Validate: validateSchema,
		Order: func(a, b kind.Object) int {
			return cmp.Compare(a.(*flowSchema).Spec.MatchingPrecedence, b.(*flowSchema).Spec.MatchingPrecedence)
		},
		Columns: []table.Column{
			table.Name(),
			table.Text("PriorityLevel", "The priority level of the requests.",
				func(fs *flowSchema) string { return fs.Spec.PriorityLevelConfiguration.Name }),
			table.Count("MatchingPrecedence", "Precedence among schemas that match a request; the lowest number applies.",
				func(fs *flowSchema) int { return int(fs.Spec.MatchingPrecedence) }),
			table.Text("DistinguisherMethod", "How requests are separated into flows.", func(fs *flowSchema) string {
				if fs.Spec.DistinguisherMethod == nil {
					return table.None
				}
				return string(fs.Spec.DistinguisherMethod.Type)
			}),
			table.Age(),
			table.Text("MissingPL", "Whether the priority level is missing.", missingLevel),
		},
	}, {
		GVR:          client.PriorityLevelConfigurations,
		Kind:         "PriorityLevelConfiguration",
		Subresources: kind.Parts("status"),
		New:          func() kind.Object { return new(level) },
		Default:      defaultLevel,
		Prepare: kind.SpecAndStatus(
			func(obj kind.Object) (*flowcontrolv1.PriorityLevelConfigurationSpec,
				*flowcontrolv1.PriorityLevelConfigurationStatus) {
				pl := obj.(*level)
				return &pl.Spec, &pl.Status
			}, defaultLevel),
		Validate: validateLevel,
		Columns: []table.Column{
			table.Name(),
			table.Text("Type", "Whether requests of the level are limited.",
				func(pl *level) string { return string(pl.Spec.Type) }),
			table.Text("NominalConcurrencyShares", "The level's share of the seats.", func(pl *level) string {
				if pl.Spec.Limited == nil {
					return table.None
				}
				return strconv.Itoa(int(ptr.Deref(pl.Spec.Limited.NominalConcurrencyShares, defaultShares)))
			}),
			table.Text("Queues", "The number of queues.",
				queuing(func(q *flowcontrolv1.QueuingConfiguration) int32 { return q.Queues })),
			table.Text("HandSize", "The number of queues that a flow can use.",
				queuing(func(q *flowcontrolv1.QueuingConfiguration) int32 { return q.HandSize })),
			table.Text("QueueLengthLimit", "The maximum number of requests in a queue.",
				queuing(func(q *flowcontrolv1.QueuingConfiguration) int32 { return q.QueueLengthLimit })),
			table.Age(),
		},
	}}
}

func missingLevel(fs *flowSchema) string {
	for _, c := range fs.Status.Conditions {
		if c.Type == flowcontrolv1.FlowSchemaConditionDangling {
			return string(c.Status)
		}
	}
	return "?"
}

// queuing returns the cell of a field of the queues' configuration.
func queuing(number func(*flowcontrolv1.QueuingConfiguration) int32) func(*level) string {
	return func(pl *level) string {
		if pl.Spec.Limited == nil || pl.Spec.Limited.LimitResponse.Queuing == nil {
			return table.None
		}
		return strconv.Itoa(int(number(pl.Spec.Limited.LimitResponse.Queuing)))
	}
}

func defaultSchema(obj kind.Object) {
	kind.SetIfZero(&obj.(*flowSchema).Spec.MatchingPrecedence, defaultPrecedence)
}

func defaultLevel(obj kind.Object) {
	pl := obj.(*level)
	if e := pl.Spec.Exempt; e != nil {
		kind.SetIfNil(&e.NominalConcurrencyShares, 0)
		kind.SetIfNil(&e.LendablePercent, 0)
	}
	l := pl.Spec.Limited
	if l == nil {
		return
	}
	kind.SetIfNil(&l.NominalConcurrencyShares, defaultShares)
	kind.SetIfNil(&l.LendablePercent, 0)
	if q := l.LimitResponse.Queuing; q != nil {
		kind.SetIfZero(&q.HandSize, defaultHandSize)
		kind.SetIfZero(&q.Queues, defaultQueues)
		kind.SetIfZero(&q.QueueLengthLimit, defaultQueueLength)
	}
}
