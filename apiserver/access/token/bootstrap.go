package token

import (
	"crypto/subtle"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"k8s.io/cluster-bootstrap/util/secrets"
	"k8s.io/cluster-bootstrap/util/tokens"
	"k8s.io/utils/clock"

	"monopod/apiserver/auth"
	"monopod/apiserver/kit/client"
)

// Bootstrap returns an Authenticator for the bootstrap tokens in c: Secrets in kube-system with which machines join the
// cluster.
func Bootstrap(c client.Client, clk clock.PassiveClock) auth.Authenticator {
	return auth.Func(func(r *http.Request) (auth.User, bool) {
		id, secret, err := tokens.ParseToken(auth.Bearer(r))
		if err != nil {
			return auth.User{}, false
		}
		stored, err := client.Get[*corev1.Secret](r.Context(), c, metav1.NamespaceSystem,
			bootstrapapi.BootstrapTokenSecretPrefix+id)
		if err != nil || !validBootstrap(stored, id, secret, clk.Now()) {
			return auth.User{}, false
		}
		return auth.User{Name: bootstrapapi.BootstrapUserPrefix + id, Groups: append(bootstrapGroups(stored), auth.Authenticated)}, true
	})
}

func validBootstrap(stored *corev1.Secret, id, secret string, now time.Time) bool {
	return stored.Type == bootstrapapi.SecretTypeBootstrapToken && stored.DeletionTimestamp == nil &&
		secrets.GetData(stored, bootstrapapi.BootstrapTokenIDKey) == id &&
		subtle.ConstantTimeCompare(stored.Data[bootstrapapi.BootstrapTokenSecretKey], []byte(secret)) == 1 &&
		!secrets.HasExpired(stored, now) &&
		secrets.GetData(stored, bootstrapapi.BootstrapTokenUsageAuthentication) == "true"
}

// bootstrapGroups returns the group of all bootstrap tokens and the groups in the Secret, which must start with its
// name.
func bootstrapGroups(stored *corev1.Secret) []string {
	groups := []string{bootstrapapi.BootstrapDefaultGroup}
	for g := range strings.SplitSeq(secrets.GetData(stored, bootstrapapi.BootstrapTokenExtraGroupsKey), ",") {
		if g = strings.TrimSpace(g); strings.HasPrefix(g, bootstrapapi.BootstrapDefaultGroup+":") {
			groups = append(groups, g)
		}
	}
	return groups
}
