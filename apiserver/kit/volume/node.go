package volume

import (
	"context"

	corev1 "k8s.io/api/core/v1"
)

// Node sets up the volumes of one pod; agent/storage/volume implements it. The methods for a type return the path of
// the volume. They may be called again, when the pod or an object that it refers to has changed, and change nothing
// that is up to date.
type Node interface {
	ConfigMap(ctx context.Context, v *corev1.Volume) (path string, err error)
	DownwardAPI(ctx context.Context, v *corev1.Volume) (path string, err error)
	EmptyDir(ctx context.Context, v *corev1.Volume) (path string, err error)
	HostPath(ctx context.Context, v *corev1.Volume) (path string, err error)
	// Image returns no path: the runtime mounts images into each container.
	Image(ctx context.Context, v *corev1.Volume) (path string, err error)
	Projected(ctx context.Context, v *corev1.Volume) (path string, err error)
	Secret(ctx context.Context, v *corev1.Volume) (path string, err error)
	// Claim sets up the PersistentVolume of a claim by its type's SetUp.
	Claim(ctx context.Context, v *corev1.Volume) (path string, err error)
	ClaimedHostPath(ctx context.Context, pv *corev1.PersistentVolume, v *corev1.Volume) (path string, err error)
	ClaimedLocal(ctx context.Context, pv *corev1.PersistentVolume, v *corev1.Volume) (path string, err error)
	// CSI and ClaimedCSI make a CSI driver mount the volume.
	CSI(ctx context.Context, v *corev1.Volume) (path string, err error)
	ClaimedCSI(ctx context.Context, pv *corev1.PersistentVolume, v *corev1.Volume) (path string, err error)

	// Folder creates the folder of a volume, for a type that has no method here.
	Folder(v *corev1.Volume) (path string, err error)
	// Pod returns the pod, which must not be modified.
	Pod() *corev1.Pod
}

const (
	plugins        = "kubernetes.io/"
	hostPathPlugin = plugins + "host-path"
	csiPlugin      = plugins + "csi"
)

func always(*corev1.VolumeSource) bool { return true }
