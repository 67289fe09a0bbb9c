package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/host"
)

// HostPath checks or creates the path.
func (s *setup) HostPath(_ context.Context, v *corev1.Volume) (string, error) {
	if path := s.Have[v.Name]; path != "" { // the path is checked once
		return path, nil
	}
	here := *v.HostPath
	here.Path = host.KubeletPath(here.Path, s.Data)
	return here.Path, checkHostPath(&here)
}

// checkHostPath checks or creates the path according to the volume's type.
func checkHostPath(v *corev1.HostPathVolumeSource) error {
	kind := corev1.HostPathUnset
	if v.Type != nil {
		kind = *v.Type
	}
	info, err := os.Stat(v.Path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	exists := err == nil
	switch kind {
	case corev1.HostPathUnset:
		return nil
	case corev1.HostPathDirectoryOrCreate:
		if !exists {
			return os.MkdirAll(v.Path, 0o755)
		}
		kind = corev1.HostPathDirectory
	case corev1.HostPathFileOrCreate:
		if !exists {
			return touch(v.Path)
		}
		kind = corev1.HostPathFile
	}
	if !exists || !isKind(info.Mode(), kind) {
		return fmt.Errorf("hostPath type check failed: %s is not a %s", v.Path, noun(kind))
	}
	return nil
}

func touch(path string) error {
	if _, err := os.Stat(filepath.Dir(path)); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

func isKind(m os.FileMode, kind corev1.HostPathType) bool {
	switch kind {
	case corev1.HostPathDirectory:
		return m.IsDir()
	case corev1.HostPathFile:
		return m.IsRegular()
	case corev1.HostPathSocket:
		return m&os.ModeSocket != 0
	case corev1.HostPathCharDev:
		return m&os.ModeCharDevice != 0
	case corev1.HostPathBlockDev:
		return m&os.ModeDevice != 0 && m&os.ModeCharDevice == 0
	}
	return false
}

func noun(kind corev1.HostPathType) string {
	switch kind {
	case corev1.HostPathSocket:
		return "socket file"
	case corev1.HostPathCharDev:
		return "character device"
	case corev1.HostPathBlockDev:
		return "block device"
	case corev1.HostPathFile:
		return "file"
	}
	return "directory"
}
