package serviceaccounttoken

import (
	"bytes"
	"context"
	"maps"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/controllers/internal/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// issuing is a client whose tokens name the service account and the bound object.
type issuing struct{ client.Client }

func (i issuing) Update(ctx context.Context, ref client.Ref, change client.Change) (client.Object, error) {
	if ref.Subresource != "token" {
		return i.Client.Update(ctx, ref, change)
	}
	out, err := change(&authenticationv1.TokenRequest{})
	if err != nil {
		return nil, err
	}
	req := out.(*authenticationv1.TokenRequest)
	req.Status.Token = "of " + ref.Name + " in " + req.Spec.BoundObjectRef.Name
	return req, nil
}

func secret(name, account string) *corev1.Secret {
	return &corev1.Secret{TypeMeta: metav1.TypeMeta{Kind: "Secret", APIVersion: "v1"},
		Type: corev1.SecretTypeServiceAccountToken,
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
			Annotations: map[string]string{corev1.ServiceAccountNameKey: account}}}
}

func robotNamed(name string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{Kind: "ServiceAccount", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}

func TestDeletedSecretsAreRemovedFromAccount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		robot := robotNamed("robot")
		robot.Secrets = []corev1.ObjectReference{{Name: "s"}, {Name: "mine"}}
		api.Create(robot)
		deps := api.Deps()
		deps.Client = issuing{deps.Client}
		api.Run(New(deps, Config{}))
		api.Create(secret("s", "robot"))
		synctest.Wait()
		api.Delete(secret("s", "robot"), "")
		synctest.Wait()
		if sa, _ := apitest.Get[*corev1.ServiceAccount](api, "default", "robot"); len(sa.Secrets) != 1 ||
			sa.Secrets[0].Name != "mine" {
			t.Errorf("the service account lists %v", sa.Secrets)
		}
	})
}

func TestSecretsFollowTheirAccounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Create(robotNamed("robot"))
		deps := api.Deps()
		deps.Client = issuing{deps.Client}
		api.Run(New(deps, Config{CA: []byte("pem")}))
		api.Create(secret("s", "robot"))
		api.Create(secret("stray", "none"))
		other := secret("other", "")
		other.Type, other.Annotations = corev1.SecretTypeOpaque, nil
		api.Create(other)
		synctest.Wait()
		s, ok := apitest.Get[*corev1.Secret](api, "default", "s")
		if !ok || string(s.Data["token"]) != "of robot in s" || string(s.Data["ca.crt"]) != "pem" ||
			string(s.Data["namespace"]) != "default" {
			t.Errorf("%t %+v", ok, s)
		}
		if s.Annotations[corev1.ServiceAccountUIDKey] == "" {
			t.Error("the Secret lacks the annotation with the account's UID")
		}
		for what, spoil := range map[string]func(*corev1.Secret){
			"token": func(s *corev1.Secret) { delete(s.Data, "token") }, "namespace": func(s *corev1.Secret) {
				delete(s.Data,
					"namespace")
			},
			"ca.crt": func(s *corev1.Secret) { s.Data["ca.crt"] = []byte("former") },
			"UID":    func(s *corev1.Secret) { delete(s.Annotations, corev1.ServiceAccountUIDKey) },
		} {
			apitest.Change(api, secret("s", "robot"), "", spoil)
			synctest.Wait()
			now, _ := apitest.Get[*corev1.Secret](api, "default", "s")
			if !maps.EqualFunc(now.Data, s.Data, bytes.Equal) || !maps.Equal(now.Annotations, s.Annotations) {
				t.Errorf("after a change of its %s: %v %v", what, now.Data, now.Annotations)
			}
		}
		former := secret("former", "robot")
		former.Annotations[corev1.ServiceAccountUIDKey] = "another"
		api.Create(former)
		synctest.Wait()
		if _, ok := apitest.Get[*corev1.Secret](api, "default", "former"); ok {
			t.Error("the Secret of a replaced service account was not deleted")
		}
		if _, ok := apitest.Get[*corev1.Secret](api, "default", "stray"); ok {
			t.Error("the Secret of a missing service account was not deleted")
		}
		api.Delete(robotNamed("robot"), "")
		synctest.Wait()
		if _, ok := apitest.Get[*corev1.Secret](api, "default", "s"); ok {
			t.Error("the Secret was not deleted with its service account")
		}
		if o, ok := apitest.Get[*corev1.Secret](api, "default", "other"); !ok || len(o.Data) > 0 {
			t.Error("the controller changed a Secret of another type")
		}
	})
}
