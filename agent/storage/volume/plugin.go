package volume

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Observer gets which volume, of which of upstream's plugins, was set up, how long
// that took and why it failed.
type Observer func(volume, plugin string, took time.Duration, err error)

// The plugins that claims may be bound to volumes of.
const (
	hostPathPlugin = "kubernetes.io/host-path"
	localPlugin    = "kubernetes.io/local-volume"
)

// Plugin is upstream's name of what sets up a volume; empty for a claim, which only
// its PersistentVolume tells, and for what nothing here sets up.
func Plugin(v *corev1.Volume) string {
	switch {
	case v.HostPath != nil:
		return hostPathPlugin
	case v.EmptyDir != nil:
		return "kubernetes.io/empty-dir"
	case v.ConfigMap != nil:
		return "kubernetes.io/configmap"
	case v.Secret != nil:
		return "kubernetes.io/secret"
	case v.DownwardAPI != nil:
		return "kubernetes.io/downward-api"
	case v.Projected != nil:
		return "kubernetes.io/projected"
	}
	return ""
}

// pluginBehind is likewise of a PersistentVolume.
func pluginBehind(pv *corev1.PersistentVolume) string {
	switch {
	case pv.Spec.HostPath != nil:
		return hostPathPlugin
	case pv.Spec.Local != nil:
		return localPlugin
	}
	return ""
}
