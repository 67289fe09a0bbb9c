package pod

import (
	"fmt"
	"monopod/apiserver/registry/pod/podspec"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (n *notes) volumeWarnings(volumes []corev1.Volume, path *field.Path) {
	for i := range volumes {
		v, at := &volumes[i], path.Index(i)
		if plugin, age := oldPlugin(&v.VolumeSource); plugin != "" {
			n.add(at.Child(plugin), "%s", age)
		}
		if e := v.Ephemeral; e != nil && e.VolumeClaimTemplate != nil {
			n.claimWarnings(&e.VolumeClaimTemplate.Spec, at.Child("ephemeral", "volumeClaimTemplate", "spec"))
		}
	}
	for i := range volumes {
		n.overlapWarnings(&volumes[i])
	}
}

// ClaimWarnings is what is odd about a claim's spec at path.
func ClaimWarnings(spec *corev1.PersistentVolumeClaimSpec, path *field.Path) []string {
	var n notes
	n.claimWarnings(spec, path)
	return n.lines
}

func (n *notes) claimWarnings(spec *corev1.PersistentVolumeClaimSpec, path *field.Path) {
	if size := spec.Resources.Requests[corev1.ResourceStorage]; size.MilliValue()%1000 != 0 {
		n.add(path.Child("resources", "requests").Key("storage"), "fractional byte value %q is invalid, must be an integer", size.String())
	}
}

// oldPlugin says since when a volume plugin is no more.
func oldPlugin(v *corev1.VolumeSource) (plugin, age string) {
	const gone = "deprecated in v1.%d, non-functional in v1.%d+"
	switch {
	case v.PhotonPersistentDisk != nil:
		return "photonPersistentDisk", fmt.Sprintf(gone, 11, 16)
	case v.GitRepo != nil:
		return "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"
	case v.ScaleIO != nil:
		return "scaleIO", fmt.Sprintf(gone, 16, 22)
	case v.Flocker != nil:
		return "flocker", fmt.Sprintf(gone, 22, 25)
	case v.StorageOS != nil:
		return "storageOS", fmt.Sprintf(gone, 22, 25)
	case v.Quobyte != nil:
		return "quobyte", fmt.Sprintf(gone, 22, 25)
	case v.Glusterfs != nil:
		return "glusterfs", fmt.Sprintf(gone, 25, 26)
	case v.CephFS != nil:
		return "cephfs", fmt.Sprintf(gone, 28, 31)
	case v.RBD != nil:
		return "rbd", fmt.Sprintf(gone, 28, 31)
	}
	return "", ""
}

// overlapWarnings: files of a volume that would be written over each other.
func (n *notes) overlapWarnings(v *corev1.Volume) {
	switch {
	case v.ConfigMap != nil:
		n.overlaps(podspec.ItemPaths(v.ConfigMap.Items), nil, fmt.Sprintf("volume %q (ConfigMap %q)", v.Name, v.ConfigMap.Name))
	case v.Secret != nil:
		n.overlaps(podspec.ItemPaths(v.Secret.Items), nil, fmt.Sprintf("volume %q (Secret %q)", v.Name, v.Secret.SecretName))
	case v.DownwardAPI != nil:
		n.overlaps(downwardPaths(v.DownwardAPI.Items), nil, fmt.Sprintf("volume %q (DownwardAPI)", v.Name))
	case v.Projected != nil:
		var before []string
		for i := range v.Projected.Sources {
			paths, what := projectionPaths(&v.Projected.Sources[i])
			if what == "" {
				n.lines = append(n.lines, fmt.Sprintf("volume %q (Projected) has no sources provided", v.Name))
				continue
			}
			before = n.overlaps(paths, before, fmt.Sprintf("volume %q (Projected %s)", v.Name, what))
		}
	}
}

// projectionPaths are the files of a source, and what it is; empty for none.
func projectionPaths(p *corev1.VolumeProjection) (paths []string, what string) {
	switch {
	case p.ConfigMap != nil:
		return podspec.ItemPaths(p.ConfigMap.Items), fmt.Sprintf("ConfigMap %q", p.ConfigMap.Name)
	case p.Secret != nil:
		return podspec.ItemPaths(p.Secret.Items), fmt.Sprintf("Secret %q", p.Secret.Name)
	case p.DownwardAPI != nil:
		return downwardPaths(p.DownwardAPI.Items), "DownwardAPI"
	case p.ServiceAccountToken != nil:
		return []string{p.ServiceAccountToken.Path}, "ServiceAccountToken"
	case p.ClusterTrustBundle != nil:
		return []string{p.ClusterTrustBundle.Path}, "ClusterTrustBundle"
	case p.PodCertificate != nil:
		return nil, "PodCertificate"
	}
	return nil, ""
}

func downwardPaths(items []corev1.DownwardAPIVolumeFile) []string {
	var paths []string
	for i := range items {
		paths = append(paths, items[i].Path)
	}
	return paths
}

// overlaps compares paths with each other and with those before, and returns
// them all.
func (n *notes) overlaps(paths, before []string, what string) []string {
	for _, path := range paths {
		path = strings.TrimRight(path, "/")
		for _, other := range before {
			if within(path, other) || within(other, path) {
				n.lines = append(n.lines, fmt.Sprintf("%s: overlapping paths: %q with %q", what, path, other))
				break
			}
		}
		before = append(before, path)
	}
	return before
}

// within: path is dir or lies in it.
func within(path, dir string) bool {
	return path != "" && dir != "" && strings.HasPrefix(path+"/", dir+"/")
}
