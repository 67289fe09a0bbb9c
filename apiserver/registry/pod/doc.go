// Package podspec validates the spec of a pod or a pod template, and iterates over its containers.
// Package pod validates changes of existing pods.

package pod
