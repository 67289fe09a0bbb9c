package fake

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// OnLoopback reports whether the image's registry is on this machine's loopback. Only such
// images are really pulled.
func OnLoopback(named reference.Named) bool {
	domain := reference.Domain(named)
	if host, _, err := net.SplitHostPort(domain); err == nil {
		domain = host
	}
	return domain == "localhost" || net.ParseIP(domain).IsLoopback()
}

// Fetch pulls an image: its manifest, its config and its layers. It reads and verifies large layers, but does not keep
// them. Errors have containerd's texts and codes.
func Fetch(ctx context.Context, named reference.Named, auth *cri.AuthConfig) (*Image, digest.Digest, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // no goroutine outlives a response
	resolver := docker.NewResolver(docker.ResolverOptions{Hosts: docker.ConfigureDefaultRegistries(
		docker.WithPlainHTTP(docker.MatchLocalhost), docker.WithClient(client),
		docker.WithAuthorizer(
			docker.NewDockerAuthorizer(docker.WithAuthClient(client), docker.WithAuthCreds(credentials(auth)))),
	)})
	name, desc, err := resolver.Resolve(ctx, named.String())
	if err != nil {
		return nil, "", pullError(named, fmt.Errorf("failed to resolve reference %q: %w", named.String(), err))
	}
	from, err := resolver.Fetcher(ctx, name)
	if err != nil {
		return nil, "", pullError(named, err)
	}
	meta := metadata{}
	if err := meta.fetch(ctx, from, desc); err != nil {
		return nil, "", pullError(named, fmt.Errorf("failed to copy: %w", err))
	}
	i, err := meta.manifest(desc)
	if err != nil {
		return nil, "", pullError(named, err)
	}
	return i, desc.Digest, nil
}

func credentials(auth *cri.AuthConfig) func(string) (string, string, error) {
	return func(string) (user, secret string, err error) {
		if plain, err := base64.StdEncoding.DecodeString(auth.GetAuth()); err == nil && auth.GetAuth() != "" {
			user, secret, _ = strings.Cut(string(plain), ":")
			return user, secret, nil
		}
		if auth.GetIdentityToken() != "" {
			return "", auth.GetIdentityToken(), nil
		}
		return auth.GetUsername(), auth.GetPassword(), nil
	}
}

func pullError(named reference.Named, err error) error {
	code := codes.Unknown
	if errdefs.IsNotFound(err) {
		code = codes.NotFound
	}
	return status.Errorf(code, "failed to pull and unpack image %q: %v", named.String(), err)
}

// fetch pulls a manifest with its config and layers, for our platform.
func (m metadata) fetch(ctx context.Context, from remotes.Fetcher, desc v1.Descriptor) error {
	if err := m.blob(ctx, from, desc); err != nil {
		return err
	}
	var content struct {
		v1.Manifest
		Manifests []v1.Descriptor `json:"manifests"`
	}
	if err := m.decode(blob(desc.Digest), &content); err != nil {
		return err
	}
	if len(content.Manifests) > 0 {
		return m.fetch(ctx, from, pick(content.Manifests))
	}
	if err := m.blob(ctx, from, content.Config); err != nil {
		return err
	}
	for _, layer := range content.Layers {
		if err := m.fetchLayer(ctx, from, layer); err != nil {
			return err
		}
	}
	return nil
}

// fetchLayer pulls a layer, and keeps it if it is small.
func (m metadata) fetchLayer(ctx context.Context, from remotes.Fetcher, layer v1.Descriptor) error {
	if layer.Size > maxMetadata {
		return verify(ctx, from, layer, io.Discard)
	}
	return m.blob(ctx, from, layer)
}

// blob pulls and keeps a blob. It fails if the blob is larger than maxMetadata.
func (m metadata) blob(ctx context.Context, from remotes.Fetcher, desc v1.Descriptor) error {
	if desc.Size > maxMetadata {
		return fmt.Errorf("%s has %d bytes", desc.Digest, desc.Size)
	}
	var data strings.Builder
	if err := verify(ctx, from, desc, &data); err != nil {
		return err
	}
	m[blob(desc.Digest)] = []byte(data.String())
	return nil
}

// verify copies a blob and checks its digest.
func verify(ctx context.Context, from remotes.Fetcher, desc v1.Descriptor, to io.Writer) error {
	if err := desc.Digest.Validate(); err != nil {
		return err
	}
	in, err := from.Fetch(ctx, desc)
	if err != nil {
		return err
	}
	defer in.Close()
	check := desc.Digest.Verifier()
	if _, err := io.Copy(io.MultiWriter(to, check), in); err != nil {
		return err
	}
	if !check.Verified() {
		return fmt.Errorf("the content does not match the digest %s", desc.Digest)
	}
	return nil
}
