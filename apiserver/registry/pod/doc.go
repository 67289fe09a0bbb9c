// Package pod validates pods, pod templates and updates of pods, and iterates over the containers of a pod.
package pod
