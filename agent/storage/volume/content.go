package volume

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/podapi/env"
	"monopod/agent/storage/tree"
)

// defaultMode is upstream's default mode of files.
const defaultMode = 0o644

func mode(m *int32) os.FileMode {
	if m == nil {
		return defaultMode
	}
	return os.FileMode(*m)
}

// ConfigMap writes the data of a ConfigMap.
func (s *setup) ConfigMap(_ context.Context, v *corev1.Volume) (string, error) {
	files, err := configMapFiles(v.ConfigMap, s.Source)
	if err != nil {
		return "", err
	}
	return s.write(v, files, diskFolder)
}

func configMapFiles(v *corev1.ConfigMapVolumeSource, src env.Source) (tree.Files, error) {
	cm, err := src.ConfigMap(v.Name)
	if err != nil {
		return nil, err
	}
	if cm == nil {
		return tree.Files{}, absent(v.Optional, "configmap %q not found", v.Name)
	}
	data := make(map[string][]byte, len(cm.Data)+len(cm.BinaryData))
	for k, s := range cm.Data {
		data[k] = []byte(s)
	}
	maps.Copy(data, cm.BinaryData)
	return pick(data, v.Items, tree.File{Mode: mode(v.DefaultMode), User: v.DefaultUser}, v.Optional,
		"configmap references non-existent config key: %s")
}

// Secret writes the data of a Secret to a tmpfs.
func (s *setup) Secret(_ context.Context, v *corev1.Volume) (string, error) {
	files, err := secretFiles(v.Secret, s.Source)
	if err != nil {
		return "", err
	}
	return s.write(v, files, s.tmpfs)
}

func secretFiles(v *corev1.SecretVolumeSource, src env.Source) (tree.Files, error) {
	secret, err := src.Secret(v.SecretName)
	if err != nil {
		return nil, err
	}
	if secret == nil {
		return tree.Files{}, absent(v.Optional, "secret %q not found", v.SecretName)
	}
	return pick(secret.Data, v.Items, tree.File{Mode: mode(v.DefaultMode), User: v.DefaultUser}, v.Optional,
		"references non-existent secret key: %s")
}

// absent returns the error for a missing object or key; nil if it is optional.
func absent(optional *bool, format string, args ...any) error {
	if optional != nil && *optional {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// pick returns all of data, or the keys in items under their paths; def contains the default mode and owner. missing is
// the format of the error for a missing key.
func pick(data map[string][]byte, items []corev1.KeyToPath, def tree.File, optional *bool,
	missing string) (tree.Files, error) {
	files := tree.Files{}
	if len(items) == 0 {
		for k, b := range data {
			files[k] = with(def, b, nil, nil)
		}
		return files, nil
	}
	for _, item := range items {
		b, ok := data[item.Key]
		if !ok {
			if err := absent(optional, missing, item.Key); err != nil {
				return nil, err
			}
			continue
		}
		if err := checkPath(item.Path); err != nil {
			return nil, err
		}
		files[path.Clean(item.Path)] = with(def, b, item.Mode, item.User)
	}
	return files, nil
}

// with returns the file with the data, mode and owner if they are set.
func with(f tree.File, data []byte, mode *int32, user *int64) tree.File {
	f.Data = data
	if mode != nil {
		f.Mode = os.FileMode(*mode)
	}
	if user != nil {
		f.User = user
	}
	return f
}

// checkPath rejects paths outside of the volume and those that WriteAtomic uses.
func checkPath(p string) error {
	if p == "" || path.IsAbs(p) || strings.HasPrefix(p, "..") {
		return fmt.Errorf("invalid path %q in a volume", p)
	}
	for part := range strings.SplitSeq(p, "/") {
		if part == ".." {
			return fmt.Errorf("invalid path %q in a volume", p)
		}
	}
	return nil
}

// DownwardAPI writes fields of the pod.
func (s *setup) DownwardAPI(_ context.Context, v *corev1.Volume) (string, error) {
	d := v.DownwardAPI
	files, err := downwardFiles(d.Items, tree.File{Mode: mode(d.DefaultMode), User: d.DefaultUser}, s.facts)
	if err != nil {
		return "", err
	}
	return s.write(v, files, diskFolder)
}

func downwardFiles(items []corev1.DownwardAPIVolumeFile, def tree.File, facts env.Facts) (tree.Files, error) {
	files := tree.Files{}
	for i := range items {
		item := &items[i]
		if err := checkPath(item.Path); err != nil {
			return nil, err
		}
		var value string
		var err error
		if item.FieldRef != nil {
			value, err = env.Field(item.FieldRef.FieldPath, facts)
		} else if item.ResourceFieldRef == nil {
			err = fmt.Errorf("downward API file %q names no field", item.Path)
		} else if c := env.ContainerOf(facts.Pod, item.ResourceFieldRef.ContainerName); c == nil {
			err = fmt.Errorf("container %q not found", item.ResourceFieldRef.ContainerName)
		} else {
			value, err = env.Resource(item.ResourceFieldRef, c, facts)
		}
		if err != nil {
			return nil, err
		}
		files[path.Clean(item.Path)] = with(def, []byte(value), item.Mode, item.User)
	}
	return files, nil
}
