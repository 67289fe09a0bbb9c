// Package autoscaling contains the kind HorizontalPodAutoscaler. autoscaling/v2 is stored, autoscaling/v1 is a view of
// it.
package autoscaling

import "monopod/apiserver/registry/kind"

// Resources returns the kinds of this package, in the order of discovery.
func Resources() []kind.Resource {
	return []kind.Resource{
		autoscalerResource(),
		oldAutoscalerResource(),
	}
}
