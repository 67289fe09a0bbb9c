package pull_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/images/pull"
)

func secret(text string) *corev1.Secret {
	s := &corev1.Secret{Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(text)}}
	s.Namespace, s.Name = "default", "regcred"
	return s
}

func users(list []pull.Credential) string {
	var out []string
	for _, a := range list {
		out = append(out, a.Username)
	}
	return strings.Join(out, " ")
}

func TestServers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		image, server string
		fits          bool
	}{
		{"web", "https://index.docker.io/v1/", true}, // as docker login writes it
		{"web", "docker.io", true},
		{"web", "https://index.docker.io", true},
		{"me/web:1", "registry-1.docker.io", true},
		{"reg.example.com/a/b:1", "reg.example.com", true},
		{"reg.example.com/a/b:1", "https://reg.example.com/", true},
		{"reg.example.com/a/b:1", "https://reg.example.com/v2/", true},
		{"reg.example.com/a/b:1", "reg.example.com/a", true},
		{"reg.example.com/a/b@sha256:1", "reg.example.com/a/b", true},
		{"reg.example.com/a:1", "reg.example.com/a", true},
		{"reg.example.com/ab:1", "reg.example.com/a", false},
		{"reg.example.com/a/b:1", "reg.example.com/c", false},
		{"reg.example.com.evil/a:1", "reg.example.com", false},
		{"reg.example.com/a:1", "*.example.com", true},
		{"reg.example.com/a:1", "r*.example.com/a", true},
		{"a.reg.example.com/a:1", "*.example.com", false},
		{"example.com/a:1", "*.example.com", false},
		{"reg.example.com:5000/a:1", "reg.example.com", false},
		{"reg.example.com:5000/a:1", "*.example.com:5000", true},
		{"reg.example.com/a:1", "[.example.com", false},
		{"localhost:5000/a", "localhost:5000", true},
		{"localhost:5000/a", "http://localhost:5000", true},
		{"localhost:5000/a", "docker.io", false},
	} {
		ring, err := pull.OfSecrets([]*corev1.Secret{secret(fmt.Sprintf(`{"auths":{%q:{"auth":"dTpwOnc="}}}`, c.server))})
		if err != nil {
			t.Fatal(err)
		}
		got := ring.Lookup(c.image)
		if (len(got) == 1) != c.fits {
			t.Errorf("credentials of %s for image %s: %v", c.server, c.image, got)
		}
		if len(got) == 1 && (got[0].Username != "u" || got[0].Password != "p:w" || got[0].ServerAddress != "") {
			t.Errorf("credentials are %v", got[0])
		}
	}
}

func TestForms(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, users, fails string }{
		"user and password": {text: `{"auths":{"r.io":{"username":"u","password":"p"}}}`, users: "u"},
		"auth overrides":    {text: `{"auths":{"r.io":{"username":"x","password":"y","auth":"dTpw"}}}`, users: "u"},
		"unpadded":          {text: `{"auths":{"r.io":{"auth":"dTpwOnc"}}}`, users: "u"},
		"helpers": {text: `{"auths":{"r.io":{"auth":"dTpw"}},"credsStore":"desktop",` +
			`"credHelpers":{"r.io":"ecr-login"},"HttpHeaders":{"a":"b"}}`, users: "u"},
		"only helpers": {text: `{"credHelpers":{"r.io":"ecr-login"}}`},
		"longest path first": {text: `{"auths":{"r.io":{"auth":"dTpw"},"r.io/a/b":{"auth":"djpw"},"r.io/a":{"auth":"dzpw"}}}`,
			users: "v w u"},
		"one entry is invalid": {text: `{"auths":{"r.io":{"auth":"dTpw"},"r.io/a":{"auth":"%%%"}}}`, users: "u",
			fails: "credentials for r.io/a: auth is not the base64 of user:password"},
		"no colon": {text: `{"auths":{"r.io":{"auth":"dXA="}}}`,
			fails: "credentials for r.io: auth is not the base64 of user:password"},
		"invalid JSON": {text: `{`, fails: "unexpected end of JSON input"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "config.json")
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			check := func(ring pull.Keyring, err error, prefix string) {
				t.Helper()
				if got := users(ring.Lookup("r.io/a/b/c:1")); got != c.users {
					t.Errorf("users %q", got)
				}
				if want := prefix + c.fails; (err != nil || c.fails != "") && fmt.Sprint(err) != want {
					t.Errorf("error %v, want %s", err, want)
				}
			}
			ring, err := pull.OfSecrets([]*corev1.Secret{secret(c.text)})
			check(ring, err, "image pull secret default/regcred: ")
			ring, err = pull.OfFile(file)
			check(ring, err, file+": ")
		})
	}
	if ring, err := pull.OfFile(filepath.Join(t.TempDir(), "none")); len(ring) > 0 || err != nil {
		t.Errorf("keyring without a file: %v %v", ring, err)
	}
	old := &corev1.Secret{Data: map[string][]byte{corev1.DockerConfigKey: []byte(`{"r.io":{"auth":"dTpw"}}`)}}
	if ring, err := pull.OfSecrets([]*corev1.Secret{old}); err != nil || users(ring.Lookup("r.io/a")) != "u" {
		t.Errorf("keyring of a kubernetes.io/dockercfg Secret: %v %v", ring, err)
	}
}
