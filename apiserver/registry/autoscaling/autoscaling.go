// Package autoscaling holds HorizontalPodAutoscaler, in the two versions that it
// is shown in: stored is autoscaling/v2, of which autoscaling/v1 is a view.
package autoscaling

import "monopod/apiserver/registry/kind"

// Resources are the kinds of this package, in the order discovery lists them.
func Resources() []kind.Resource {
	return []kind.Resource{
		autoscalerResource(),
		oldAutoscalerResource(),
	}
}
