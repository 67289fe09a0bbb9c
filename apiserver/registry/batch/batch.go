// Package batch holds the kinds whose pods run to an end: jobs, and the cron
// jobs that start them.
package batch

import "monopod/apiserver/registry/kind"

// Resources are the kinds of this package, in the order discovery lists them.
func Resources() []kind.Resource {
	return []kind.Resource{
		cronJobResource(),
		jobResource(),
	}
}
