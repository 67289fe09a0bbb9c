// Package pod validates pods and pod templates, validates changes of existing pods, and iterates over the containers of
// a pod.
package pod
