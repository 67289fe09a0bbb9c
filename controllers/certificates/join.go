package certificates

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"k8s.io/cluster-bootstrap/util/secrets"

	"monopod/apiserver/kit/bootstraptoken"
	"monopod/apiserver/kit/client"
)

// The reasons why a request with a bootstrap token is denied.
const (
	NodeExists = "NodeExists" // the certificate would be that of an existing node
	TokenGone  = "TokenGone"  // the token was deleted, has expired, or has no uses left
)

const (
	// nameTime is how long a name belongs to the machine that got its certificate, before its Node exists.
	nameTime = 20 * time.Second
	// fetchTime is how long a token without uses remains valid, so that the last machine can fetch its certificate.
	fetchTime = 10 * time.Minute
)

// refusal is why a request is denied.
type refusal struct{ reason, message string }

func (r *refusal) Error() string { return r.message }

// join decides a request with the bootstrap token id for the client certificate of a new node. It spends a use of the
// token before it approves: a crash between the two loses a use, and none is used twice.
func (c *Controller) join(ctx context.Context, r *request, x *x509.CertificateRequest, id string) error {
	err := c.checkName(ctx, r, x)
	if err == nil {
		err = c.spend(ctx, id)
	}
	if no := (*refusal)(nil); errors.As(err, &no) {
		return c.add(ctx, r, "approval", certificatesv1.CertificateDenied, no.reason, no.message)
	}
	if err != nil {
		return err
	}
	return c.add(ctx, r, "approval", certificatesv1.CertificateApproved, "AutoApproved",
		"Auto approving kubelet client certificate of a machine that joins with a bootstrap token.")
}

// checkName refuses the name of an existing node, and that of a machine that joins at the same time, so that a token
// does not give control of a node.
func (c *Controller) checkName(ctx context.Context, r *request, x *x509.CertificateRequest) error {
	name := strings.TrimPrefix(x.Subject.CommonName, nodePrefix)
	_, err := client.Get[*corev1.Node](ctx, c.deps.Client, "", name)
	if err == nil {
		return &refusal{NodeExists, fmt.Sprintf("node %q exists already: choose another name, or delete the node with "+
			"kubectl delete node %s if this machine replaces it", name, name)}
	}
	if !apierrors.IsNotFound(err) {
		return err
	}
	all, err := client.List[*request](ctx, c.deps.Client, client.Selector{})
	if err != nil {
		return err
	}
	for _, other := range all {
		approved := find(other, certificatesv1.CertificateApproved)
		if other.UID == r.UID || approved == nil || c.deps.Clock.Since(approved.LastUpdateTime.Time) > nameTime ||
			!strings.HasPrefix(other.Spec.Username, bootstrapapi.BootstrapUserPrefix) {
			continue
		}
		y, err := parse(other)
		if err == nil && isNodeClient(other, y) && y.Subject.CommonName == x.Subject.CommonName &&
			!bytes.Equal(y.RawSubjectPublicKeyInfo, x.RawSubjectPublicKeyInfo) {
			return &refusal{bootstraptoken.NameTaken, fmt.Sprintf("another machine is joining as node %q: choose another name, "+
				"or try again in a minute", name)}
		}
	}
	return nil
}

// spend uses the token once. A token without a number of uses does not change. After the last use the token expires
// soon, and can only fetch the certificate until then.
func (c *Controller) spend(ctx context.Context, id string) error {
	gone := func(why string) error {
		return &refusal{TokenGone,
			fmt.Sprintf("bootstrap token %s %s: create another one with monopod token create", id, why)}
	}
	token, err := client.Get[*corev1.Secret](ctx, c.deps.Client, metav1.NamespaceSystem,
		bootstrapapi.BootstrapTokenSecretPrefix+id)
	if apierrors.IsNotFound(err) {
		return gone("was deleted")
	}
	if err != nil {
		return err
	}
	now := c.deps.Clock.Now()
	_, err = client.Update(ctx, c.deps.Client, token, "", func(cur *corev1.Secret) error {
		left, limited := bootstraptoken.Uses(cur)
		switch {
		case cur.UID != token.UID || cur.DeletionTimestamp != nil:
			return gone("was deleted")
		case secrets.HasExpired(cur, now):
			return gone("has expired")
		case !limited:
			return nil
		case left == 0:
			return gone("has no uses left")
		}
		cur.Data[bootstraptoken.UsesKey] = []byte(strconv.Itoa(left - 1))
		if remains, _ := secrets.GetExpiration(cur, now); left == 1 && (remains == 0 || remains > fetchTime) {
			cur.Data[bootstrapapi.BootstrapTokenExpirationKey] = []byte(now.Add(fetchTime).UTC().Format(time.RFC3339))
		}
		return nil
	})
	if apierrors.IsNotFound(err) {
		return gone("was deleted")
	}
	return err
}
