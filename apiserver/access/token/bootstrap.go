package token

import (
	"crypto/subtle"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"monopod/apiserver/auth"
	"monopod/apiserver/kit/client"
)

// Bootstrap tokens are Secrets in kube-system with which machines join the cluster (upstream:
// k8s.io/cluster-bootstrap/token/api).
const (
	bootstrapType   = corev1.SecretType("bootstrap.kubernetes.io/token")
	bootstrapPrefix = "bootstrap-token-"
	bootstrapUser   = "system:bootstrap:" // followed by the token's ID
	bootstrapGroup  = "system:bootstrappers"
	bootstrapID     = 6  // characters
	bootstrapSecret = 16 // characters
)

// Bootstrap returns an Authenticator for the bootstrap tokens in c.
func Bootstrap(c client.Client, clk clock.PassiveClock) auth.Authenticator {
	return auth.Func(func(r *http.Request) (auth.User, bool) {
		id, secret, ok := strings.Cut(auth.Bearer(r), ".")
		if !ok || !isTokenPart(id, bootstrapID) || !isTokenPart(secret, bootstrapSecret) {
			return auth.User{}, false
		}
		stored, err := client.Get[*corev1.Secret](r.Context(), c, metav1.NamespaceSystem, bootstrapPrefix+id)
		if err != nil || !validBootstrap(stored, id, secret, clk.Now()) {
			return auth.User{}, false
		}
		return auth.User{Name: bootstrapUser + id, Groups: append(bootstrapGroups(stored), auth.Authenticated)}, true
	})
}

// isTokenPart reports whether s has the length and consists of lower-case letters and digits.
func isTokenPart(s string, length int) bool {
	return len(s) == length && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

func validBootstrap(stored *corev1.Secret, id, secret string, now time.Time) bool {
	if stored.Type != bootstrapType || stored.DeletionTimestamp != nil || string(stored.Data["token-id"]) != id {
		return false
	}
	if subtle.ConstantTimeCompare(stored.Data["token-secret"], []byte(secret)) != 1 {
		return false
	}
	if text := string(stored.Data["expiration"]); text != "" {
		until, err := time.Parse(time.RFC3339, text)
		if err != nil || !now.Before(until) {
			return false
		}
	}
	return string(stored.Data["usage-bootstrap-authentication"]) == "true"
}

// bootstrapGroups returns the group of all bootstrap tokens and the groups in the Secret, which must start with its
// name.
func bootstrapGroups(stored *corev1.Secret) []string {
	groups := []string{bootstrapGroup}
	for g := range strings.SplitSeq(string(stored.Data["auth-extra-groups"]), ",") {
		if g = strings.TrimSpace(g); strings.HasPrefix(g, bootstrapGroup+":") {
			groups = append(groups, g)
		}
	}
	return groups
}
