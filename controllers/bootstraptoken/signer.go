package bootstraptoken

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
)

// The names are those of upstream's k8s.io/cluster-bootstrap/token/api.
const (
	infoName  = "cluster-info"
	infoKey   = "kubeconfig"
	infoSigns = "jws-kubeconfig-" // followed by the token's ID
)

// signer signs the kubeconfig in cluster-info.
type signer struct{ deps follow.Deps }

// NewSigner returns the controller that signs cluster-info.
func NewSigner(deps follow.Deps) follow.Controller { return &signer{deps} }

// Name implements follow.Controller.
func (c *signer) Name() string { return Signer }

// Run implements follow.Controller.
func (c *signer) Run(ctx context.Context) error {
	info := follow.Key{Namespace: metav1.NamespacePublic, Name: infoName}
	wake := follow.Plain(func(_, _ client.Object) []follow.Key { return []follow.Key{info} })
	return follow.New(c.deps, follow.Config[follow.Key]{
		Name: Signer,
		Sources: []follow.Source[follow.Key]{
			{Selector: client.Selector{Resource: client.ConfigMaps, Namespace: info.Namespace,
				Fields: fields.OneTermEqualSelector("metadata.name", infoName)}, Keys: wake},
			{Selector: tokens(), Keys: wake},
		},
		Reconcile: c.reconcile,
	}).Run(ctx)
}

// reconcile replaces the signatures by those of the valid tokens. It returns the time until the next token expires.
func (c *signer) reconcile(ctx context.Context, key follow.Key) (time.Duration, error) {
	info, err := client.Get[*corev1.ConfigMap](ctx, c.deps.Client, key.Namespace, key.Name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	secrets, err := client.List[*corev1.Secret](ctx, c.deps.Client, tokens())
	if err != nil {
		return 0, err
	}
	want := map[string]string{}
	var again time.Duration
	for _, s := range secrets {
		t, left, ok := signing(s, c.deps.Clock.Now())
		if !ok || info.Data[infoKey] == "" {
			continue
		}
		if want[infoSigns+t.id], err = t.sign(info.Data[infoKey]); err != nil {
			return 0, err
		}
		if left > 0 && (again == 0 || left < again) {
			again = left
		}
	}
	next := maps.Clone(info.Data)
	maps.DeleteFunc(next, func(key, _ string) bool { return strings.HasPrefix(key, infoSigns) })
	if maps.Copy(next, want); maps.Equal(next, info.Data) {
		return again, nil
	}
	_, err = client.Update(ctx, c.deps.Client, info, "", func(cur *corev1.ConfigMap) error {
		cur.UID, cur.ResourceVersion, cur.Data = info.UID, info.ResourceVersion, next
		return nil
	})
	return again, err
}

// sign returns the signature of a text as a JWS (RFC 7515) with detached content. It does not use the library for
// service account tokens, which rejects secrets as short as those of bootstrap tokens.
func (t token) sign(text string) (string, error) {
	header, err := json.Marshal(struct {
		Algorithm string `json:"alg"`
		ID        string `json:"kid"`
	}{"HS256", t.id})
	if err != nil {
		return "", fmt.Errorf("sign with token %s: %w", t.id, err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	mac := hmac.New(sha256.New, []byte(t.secret))
	fmt.Fprintf(mac, "%s.%s", encode(header), encode([]byte(text)))
	return encode(header) + ".." + encode(mac.Sum(nil)), nil
}
