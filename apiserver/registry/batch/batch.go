// Package batch contains the kinds whose pods run to completion: Job and CronJob.
package batch

import "monopod/apiserver/registry/kind"

// Resources are the kinds of this package, in the order discovery lists them.
func Resources() []kind.Resource {
	return []kind.Resource{
		cronJobResource(),
		jobResource(),
	}
}
