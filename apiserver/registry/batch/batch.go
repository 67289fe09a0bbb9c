// Package batch contains the kinds Job and CronJob, whose pods run to completion.
package batch

import "monopod/apiserver/registry/kind"

// Resources returns the kinds of this package, in the order of discovery.
func Resources() []kind.Resource {
	return []kind.Resource{
		cronJobResource(),
		jobResource(),
	}
}
