package host

import "strings"

// KubeletDir is the folder that manifests of plugins and drivers name as the kubelet's.
const KubeletDir = "/var/lib/kubelet"

// KubeletPath returns the path on this machine of a path that a pod names: what is in KubeletDir is in the data folder
// here.
func KubeletPath(path, dataDir string) string {
	if rest, ok := strings.CutPrefix(path, KubeletDir); ok && (rest == "" || rest[0] == '/') {
		return dataDir + rest
	}
	return path
}
