// Package autoscaling contains the kind HorizontalPodAutoscaler. autoscaling/v2 is stored, autoscaling/v1 is a view of
// it.
package autoscaling

import "monopod/apiserver/registry/kind"

// Resources are the kinds of this package, in the order discovery lists them.
func Resources() []kind.Resource {
	return []kind.Resource{
		autoscalerResource(),
		oldAutoscalerResource(),
	}
}
