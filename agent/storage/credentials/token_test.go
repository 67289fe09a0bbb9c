package credentials_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"monopod/agent/storage/credentials"
	"monopod/apiserver/kit/client"
)

// issuer is an API that issues the tokens "1", "2", …
type issuer struct {
	client.Client
	issued int
	fail   error
	last   *authenticationv1.TokenRequest
	ref    client.Ref
	life   int64 // seconds; 0: as requested
}

func (i *issuer) Update(_ context.Context, ref client.Ref, change client.Change) (client.Object, error) {
	if i.fail != nil {
		return nil, i.fail
	}
	obj, err := change(&authenticationv1.TokenRequest{})
	if err != nil {
		return nil, err
	}
	i.issued++
	i.ref, i.last = ref, obj.(*authenticationv1.TokenRequest).DeepCopy()
	out := i.last.DeepCopy()
	if i.life > 0 {
		out.Spec.ExpirationSeconds = &i.life
	}
	out.Status.Token = fmt.Sprint(i.issued)
	return out, nil
}

func pod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"},
		Spec: corev1.PodSpec{ServiceAccountName: "sa"}}
}

func TestTokenIsBoundToThePod(t *testing.T) {
	t.Parallel()
	api := &issuer{}
	k := credentials.NewTokens(api, clocktesting.NewFakeClock(time.Now()))
	got, err := k.Get(t.Context(), pod(),
		&corev1.ServiceAccountTokenProjection{Audience: "vault", ExpirationSeconds: new(int64(7200))})
	if err != nil || got != "1" {
		t.Fatal(got, err)
	}
	if api.ref != (client.Ref{Resource: client.ServiceAccounts, Namespace: "ns", Name: "sa", Subresource: "token"}) {
		t.Errorf("the request is for %+v", api.ref)
	}
	spec := api.last.Spec
	if *spec.ExpirationSeconds != 7200 || len(spec.Audiences) != 1 || spec.Audiences[0] != "vault" ||
		*spec.BoundObjectRef != (authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u"}) {
		t.Errorf("the spec of the request is %+v", spec)
	}
	if got, _ := k.Get(t.Context(), pod(), &corev1.ServiceAccountTokenProjection{}); got != "2" ||
		api.last.Spec.Audiences != nil {
		t.Errorf("the token for another audience is %q, audiences %v", got, api.last.Spec.Audiences)
	}
}

func TestTokenIsReplacedInTime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		life   int64 // lifetime of issued tokens, in seconds
		before time.Duration
		after  time.Duration
	}{
		"an hour":                {3607, 47*time.Minute + 40*time.Second, 48*time.Minute + 6*time.Second},
		"a week":                 {7 * 24 * 3600, 23*time.Hour + 59*time.Minute, 24 * time.Hour},
		"shorter than requested": {600, 7*time.Minute + 40*time.Second, 8 * time.Minute},
	} {
		clk := clocktesting.NewFakeClock(time.Now())
		start := clk.Now()
		api := &issuer{life: c.life}
		k := credentials.NewTokens(api, clk)
		p := &corev1.ServiceAccountTokenProjection{ExpirationSeconds: new(int64(3607))}
		for _, step := range []struct {
			at   time.Duration
			want string
		}{{0, "1"}, {c.before, "1"}, {c.after, "2"}} {
			clk.SetTime(start.Add(step.at))
			if due := k.Due("u"); due != (step.want == "2") {
				t.Errorf("%s: due after %v: %v", name, step.at, due)
			}
			if got, err := k.Get(t.Context(), pod(), p); err != nil || got != step.want {
				t.Errorf("%s: after %v: %q, %v", name, step.at, got, err)
			}
		}
	}
}

// Without the API, Get returns the token until it expires, and then an error.
func TestTokenWhileAPIIsUnavailable(t *testing.T) {
	t.Parallel()
	clk := clocktesting.NewFakeClock(time.Now())
	api := &issuer{}
	k := credentials.NewTokens(api, clk)
	p := &corev1.ServiceAccountTokenProjection{ExpirationSeconds: new(int64(3600))}
	if _, err := k.Get(t.Context(), pod(), p); err != nil {
		t.Fatal(err)
	}
	api.fail = errors.New("away")
	clk.Step(50 * time.Minute)
	if got, err := k.Get(t.Context(), pod(), p); err != nil || got != "1" {
		t.Errorf("token after 50 minutes: %q, error %v", got, err)
	}
	if k.Due("u") {
		t.Error("the token is due again right after a failure")
	}
	clk.Step(10 * time.Minute)
	if got, err := k.Get(t.Context(), pod(), p); !errors.Is(err, api.fail) {
		t.Errorf("token after an hour: %q, error %v", got, err)
	}
	api.fail = nil
	k.Forget("u")
	if got, err := k.Get(t.Context(), pod(), p); err != nil || got != "2" {
		t.Errorf("token with the API again: %q, error %v", got, err)
	}
}
