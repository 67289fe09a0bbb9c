package volume

import (
	"context"
	"errors"
	"maps"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/podapi/env"
	"monopod/agent/podapi/security"
	"monopod/agent/podapi/spec"
	"monopod/agent/storage/tree"
)

// holdsSecrets reports whether a projected volume must not be on the disk.
func holdsSecrets(v *corev1.ProjectedVolumeSource) bool {
	return slices.ContainsFunc(v.Sources, func(p corev1.VolumeProjection) bool {
		return p.Secret != nil || p.ServiceAccountToken != nil || p.PodCertificate != nil
	})
}

// Source identifies a source of a projected volume.
type Source struct {
	Volume string
	Index  int
}

// Bundle is a private key in PKCS#8 and the chain of its certificate, both PEM.
type Bundle struct{ Key, Chain []byte }

// Projected writes the files of all sources, to a tmpfs if one is secret. Of two files with the same path the later one
// takes precedence, as upstream.
func (s *setup) Projected(ctx context.Context, v *corev1.Volume) (string, error) {
	out := tree.Files{}
	def := tree.File{Mode: mode(v.Projected.DefaultMode), User: v.Projected.DefaultUser}
	for i := range v.Projected.Sources {
		files, err := s.projection(ctx, Source{Volume: v.Name, Index: i}, &v.Projected.Sources[i], def, s.facts)
		if err != nil {
			return "", err
		}
		maps.Copy(out, files)
	}
	if holdsSecrets(v.Projected) {
		return s.write(v, out, s.tmpfs)
	}
	return s.write(v, out, diskFolder)
}

func (s *Set) projection(ctx context.Context, at Source, p *corev1.VolumeProjection, def tree.File,
	facts env.Facts) (tree.Files, error) {
	m := new(int32(def.Mode))
	switch {
	case p.ConfigMap != nil:
		return configMapFiles(&corev1.ConfigMapVolumeSource{
			LocalObjectReference: p.ConfigMap.LocalObjectReference, Items: p.ConfigMap.Items,
			Optional: p.ConfigMap.Optional, DefaultMode: m, DefaultUser: def.User,
		}, s.Source)
	case p.Secret != nil:
		return secretFiles(&corev1.SecretVolumeSource{
			SecretName: p.Secret.Name, Items: p.Secret.Items,
			Optional: p.Secret.Optional, DefaultMode: m, DefaultUser: def.User,
		}, s.Source)
	case p.DownwardAPI != nil:
		return downwardFiles(p.DownwardAPI.Items, def, facts)
	case p.ServiceAccountToken != nil:
		return s.tokenFile(ctx, p.ServiceAccountToken, def, facts.Pod)
	case p.ClusterTrustBundle != nil:
		return s.bundleFile(ctx, p.ClusterTrustBundle, def)
	case p.PodCertificate != nil:
		return s.certificateFiles(ctx, at, p.PodCertificate, def, facts.Pod)
	}
	return nil, errors.New("a projected source has no type")
}

// tokenFile returns the file with a token. It belongs to the user that all containers of the pod run as, or to the
// pod's group; without either, all users in the pod may read it.
func (s *Set) tokenFile(ctx context.Context, p *corev1.ServiceAccountTokenProjection, f tree.File,
	pod *corev1.Pod) (tree.Files, error) {
	if err := checkPath(p.Path); err != nil {
		return nil, err
	}
	if s.Token == nil {
		return nil, errors.New("service account tokens are not supported by this node")
	}
	token, err := s.Token(ctx, p)
	if err != nil {
		return nil, err
	}
	return tree.Files{path.Clean(p.Path): with(private(f, pod), []byte(token), nil, p.User)}, nil
}

// private returns f with the mode and owner of a credential of the pod.
func private(f tree.File, pod *corev1.Pod) tree.File {
	user := oneUser(pod)
	if user != nil || fsGroup(pod) != nil {
		f.Mode = 0o600
	}
	if f.User == nil {
		f.User = user
	}
	return f
}

// certificateFiles returns the files of a certificate, which belong to the same user as a token.
func (s *Set) certificateFiles(ctx context.Context, at Source, p *corev1.PodCertificateProjection, f tree.File,
	pod *corev1.Pod) (tree.Files, error) {
	if s.Certificate == nil {
		return nil, errors.New("the projected source podCertificate is not supported by this node")
	}
	bundle, err := s.Certificate(ctx, at, p)
	if err != nil {
		return nil, err
	}
	files := tree.Files{}
	for file, data := range map[string][]byte{
		p.CredentialBundlePath: slices.Concat(bundle.Key, bundle.Chain),
		p.KeyPath:              bundle.Key,
		p.CertificateChainPath: bundle.Chain,
	} {
		if file == "" {
			continue
		}
		if err := checkPath(file); err != nil {
			return nil, err
		}
		files[path.Clean(file)] = with(private(f, pod), data, nil, p.User)
	}
	return files, nil
}

// oneUser returns the user that all containers of the pod run as; nil: unknown, or there are several.
func oneUser(pod *corev1.Pod) *int64 {
	var user *int64
	for _, c := range spec.Containers(&pod.Spec) {
		as := security.RunAsUser(pod, c)
		if as == nil || user != nil && *user != *as {
			return nil
		}
		user = as
	}
	return user
}
