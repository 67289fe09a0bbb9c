// Package pull provides images to the node: archives from the disk, and pulls with the credentials of the pods that
// need them.
//
//   - pull.go, try.go: pulls and their backoff
//   - keyring.go: the credentials for an image in the pod's pull secrets and in a file of the node, both in the format
//     of docker login
//   - records.go, verify.go: the record of the credentials with which each image was pulled, and which pods may use it
//   - preload.go: imports the archives in a folder, at start and when new ones appear
package pull

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Keyring is a list of servers with their credentials, in the order in which they are tried. The zero value is empty.
type Keyring []entry

type entry struct {
	server string // host and path, without scheme and version
	Credential
}

// Credential is a login and its source.
type Credential struct {
	*cri.AuthConfig
	Source *Source // nil: the node's own credentials
}

// Source identifies a pull secret and the login in it. It has the fields of kubelet's ImagePullSecret.
type Source struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Hash      string `json:"credentialHash"`
}

// Same reports whether both are from the same secret, even if its login has changed.
func (s Source) Same(t Source) bool {
	s.Hash = t.Hash
	return s == t
}

// config is docker's config.json. Credential helpers (credsStore, credHelpers) are not supported, as upstream.
type config struct {
	Auths map[string]login `json:"auths"`
}

type login struct {
	Username, Password, Auth, IdentityToken, RegistryToken string
}

// OfSecrets returns the credentials in pull secrets of both types. It returns an error for unreadable secrets together
// with the credentials in the others.
func OfSecrets(secrets []*corev1.Secret) (Keyring, error) {
	var all Keyring
	var errs []error
	for _, s := range secrets {
		var cfg config
		var err error
		if data, ok := s.Data[corev1.DockerConfigJsonKey]; ok {
			err = json.Unmarshal(data, &cfg)
		} else if data, ok := s.Data[corev1.DockerConfigKey]; ok {
			err = json.Unmarshal(data, &cfg.Auths)
		}
		some, err2 := cfg.keyring()
		for i := range some {
			some[i].Source = &Source{UID: string(s.UID), Namespace: s.Namespace, Name: s.Name, Hash: hash(some[i].AuthConfig)}
		}
		if err := errors.Join(err, err2); err != nil {
			errs = append(errs, fmt.Errorf("image pull secret %s/%s: %w", s.Namespace, s.Name, err))
		}
		all = append(all, some...)
	}
	return all.sorted(), errors.Join(errs...)
}

// OfFile returns the credentials in a file. A missing file is not an error.
func OfFile(name string) (Keyring, error) {
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var cfg config
	err = json.Unmarshal(data, &cfg)
	all, err2 := cfg.keyring()
	if err := errors.Join(err, err2); err != nil {
		return all.sorted(), fmt.Errorf("%s: %w", name, err)
	}
	return all.sorted(), nil
}

func (c *config) keyring() (Keyring, error) {
	var all Keyring
	var errs []error
	for server, l := range c.Auths {
		auth, err := l.config()
		if err != nil {
			errs = append(errs, fmt.Errorf("credentials for %s: %w", server, err))
			continue
		}
		all = append(all, entry{normalizeServer(server), Credential{AuthConfig: auth}})
	}
	return all, errors.Join(errs...)
}

// config returns the login in CRI's format. It omits ServerAddress: with it, containerd would not send the credentials
// to other hosts, such as a mirror, and containerd does not understand every notation.
func (l *login) config() (*cri.AuthConfig, error) {
	user, password := l.Username, l.Password
	if l.Auth != "" {
		plain, err := base64.StdEncoding.DecodeString(strings.TrimSpace(l.Auth))
		if err != nil {
			plain, err = base64.RawStdEncoding.DecodeString(strings.TrimSpace(l.Auth))
		}
		u, p, ok := strings.Cut(string(plain), ":")
		if err != nil || !ok {
			return nil, errors.New("auth is not the base64 of user:password")
		}
		user, password = u, p
	}
	return &cri.AuthConfig{Username: user, Password: password, IdentityToken: l.IdentityToken,
		RegistryToken: l.RegistryToken}, nil
}

// hash returns the SHA-256 of a login.
func hash(auth *cri.AuthConfig) string {
	text, err := json.Marshal([]string{auth.Username, auth.Password, auth.IdentityToken, auth.RegistryToken})
	if err != nil { // never for strings
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// sorted sorts longer paths on the same server first.
func (k Keyring) sorted() Keyring {
	slices.SortStableFunc(k, func(a, b entry) int { return strings.Compare(b.server, a.server) })
	return k
}

// Lookup returns the credentials for an image, in the order in which they are tried.
func (k Keyring) Lookup(image string) []Credential {
	full := qualify(image)
	var out []Credential
	for _, e := range k {
		if matchesImage(e.server, full) {
			out = append(out, e.Credential)
		}
	}
	return out
}

// defaultRegistry is the registry of images whose name has none.
const defaultRegistry = "docker.io"

// normalizeServer normalizes a server name from a secret: without scheme and API version, and with docker.io for the
// default registry.
func normalizeServer(server string) string {
	if _, rest, ok := strings.Cut(server, "://"); ok {
		server = rest
	}
	server = strings.TrimSuffix(server, "/")
	server = strings.TrimSuffix(strings.TrimSuffix(server, "/v1"), "/v2")
	host, rest, _ := strings.Cut(server, "/")
	if host == "index.docker.io" || host == "registry-1.docker.io" {
		host = defaultRegistry
	}
	return strings.TrimSuffix(host+"/"+rest, "/")
}

// matchesImage reports whether credentials for a server match the image. The server may have a path, and the labels of
// its host may be globs.
func matchesImage(server, image string) bool {
	host, dir, _ := strings.Cut(server, "/")
	at, name, _ := strings.Cut(image, "/")
	return sameHost(host, at) && (dir == "" || name == dir || strings.HasPrefix(name, dir+"/"))
}

func sameHost(pattern, host string) bool {
	pattern, port1, _ := strings.Cut(pattern, ":")
	host, port2, _ := strings.Cut(host, ":")
	globs, labels := strings.Split(pattern, "."), strings.Split(host, ".")
	if port1 != port2 || len(globs) != len(labels) {
		return false
	}
	for i := range globs {
		if ok, err := path.Match(globs[i], labels[i]); !ok || err != nil {
			return false
		}
	}
	return true
}

// qualify returns the image's name with registry, and without tag and digest.
func qualify(image string) string {
	host, _, found := strings.Cut(image, "/")
	if found && (strings.ContainsAny(host, ".:") || host == "localhost") {
		return withoutTag(image)
	}
	if !found {
		image = "library/" + image
	}
	return defaultRegistry + "/" + withoutTag(image)
}

// withoutTag returns the image's name without tag and digest.
func withoutTag(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
		return image[:i]
	}
	return image
}
