package volume

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/env"
)

// holdsSecrets says whether a projected volume is kept off the disk.
func holdsSecrets(v *corev1.ProjectedVolumeSource) bool {
	return slices.ContainsFunc(v.Sources, func(p corev1.VolumeProjection) bool { return p.Secret != nil || p.ServiceAccountToken != nil })
}

func (s *Set) projectedFiles(ctx context.Context, v *corev1.ProjectedVolumeSource, facts env.Facts) (Files, error) {
	out := Files{}
	for i := range v.Sources {
		files, err := s.projection(ctx, &v.Sources[i], v.DefaultMode, facts)
		if err != nil {
			return nil, err
		}
		for name, f := range files {
			out[name] = f
		}
	}
	return out, nil
}

func (s *Set) projection(ctx context.Context, p *corev1.VolumeProjection, defaultMode *int32, facts env.Facts) (Files, error) {
	def := mode(defaultMode)
	m := new(int32(def))
	switch {
	case p.ConfigMap != nil:
		return configMapFiles(&corev1.ConfigMapVolumeSource{
			LocalObjectReference: p.ConfigMap.LocalObjectReference, Items: p.ConfigMap.Items, Optional: p.ConfigMap.Optional, DefaultMode: m,
		}, s.Source)
	case p.Secret != nil:
		return secretFiles(&corev1.SecretVolumeSource{
			SecretName: p.Secret.Name, Items: p.Secret.Items, Optional: p.Secret.Optional, DefaultMode: m,
		}, s.Source)
	case p.DownwardAPI != nil:
		return downwardFiles(p.DownwardAPI.Items, def, facts)
	case p.ServiceAccountToken != nil:
		return s.tokenFile(ctx, p.ServiceAccountToken, File{Mode: def}, facts.Pod)
	}
	return nil, fmt.Errorf("this projected source is not supported")
}

// tokenFile is for the one user that all containers of the pod run as, or for the
// pod's group, where there is such; else for everybody in the pod.
func (s *Set) tokenFile(ctx context.Context, p *corev1.ServiceAccountTokenProjection, f File, pod *corev1.Pod) (Files, error) {
	if err := checkPath(p.Path); err != nil {
		return nil, err
	}
	if s.Token == nil {
		return nil, errors.New("no service account tokens are given out here")
	}
	token, err := s.Token(ctx, p)
	if err != nil {
		return nil, err
	}
	f.Data, f.User = []byte(token), oneUser(pod)
	if f.User != nil || fsGroup(pod) != nil {
		f.Mode = 0o600
	}
	return Files{path.Clean(p.Path): f}, nil
}

// oneUser is the user that all containers of the pod run as; nil when they do not
// say, or differ.
func oneUser(pod *corev1.Pod) *int64 {
	var user *int64
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			as := runAs(pod, &list[i])
			if as == nil || user != nil && *user != *as {
				return nil
			}
			user = as
		}
	}
	return user
}

func runAs(pod *corev1.Pod, c *corev1.Container) *int64 {
	if sc := c.SecurityContext; sc != nil && sc.RunAsUser != nil {
		return sc.RunAsUser
	}
	if psc := pod.Spec.SecurityContext; psc != nil {
		return psc.RunAsUser
	}
	return nil
}
