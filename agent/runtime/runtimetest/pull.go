package runtimetest

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/runtime/runtimetest/registrytest"
)

// startRegistry starts a registry that stops with the test.
func startRegistry(t *testing.T) *registrytest.Registry {
	t.Helper()
	r := registrytest.New()
	t.Cleanup(r.Close)
	return r
}

func testPull(t *testing.T, env Env) {
	ctx, r := t.Context(), startRegistry(t)
	refused := func(what, name string, auth *cri.AuthConfig, text string) {
		t.Helper()
		_, err := env.Runtime.PullImage(ctx, name, auth, nil)
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := env.Runtime.PullImage(ctx, r.Host+"/none:1", nil, nil)
	wantCode(t, "an image that is not there", err, codes.NotFound)
	tagged, digest, err := r.Push("team/app:1", []byte(r.Host)) // unique content
	if err != nil {
		t.Fatal(err)
	}
	r.Require("me", "secret")
	right := &cri.AuthConfig{Username: "me", Password: "secret"}
	refused("nobody", tagged, nil, "failed to pull and unpack image")
	refused("a wrong password", tagged, &cri.AuthConfig{Username: "me", Password: "guess"},
		"failed to pull and unpack image")
	for range 2 { // the pull is idempotent
		if _, err := env.Runtime.PullImage(ctx, tagged, right, nil); err != nil {
			t.Fatal(err)
		}
	}
	img := pulledAs(t, env, tagged)
	if !slices.Contains(img.RepoTags, tagged) || !slices.Contains(img.RepoDigests, digest) || img.Pinned || img.Size == 0 {
		t.Errorf("status %v", img)
	}
	if err := env.Runtime.RemoveImage(ctx, img.Id); err != nil {
		t.Fatal(err)
	}
	if _, err := env.Runtime.PullImage(ctx, digest, right, nil); err != nil {
		t.Fatalf("pull by digest: %v", err)
	}
	if img := pulledAs(t, env, digest); !slices.Contains(img.RepoDigests, digest) || len(img.RepoTags) > 0 {
		t.Errorf("status by digest %v", img)
	}
	r.Close()
	refused("no registry", r.Host+"/other:1", right, "connection refused")
}

func pulledAs(t *testing.T, env Env, name string) *cri.Image {
	t.Helper()
	img, err := env.Runtime.ImageStatus(t.Context(), name)
	if err != nil || img == nil {
		t.Fatalf("status of %s: %v, %v", name, img, err)
	}
	t.Cleanup(func() {
		if err := env.Runtime.RemoveImage(context.Background(), img.Id); err != nil {
			t.Error(err)
		}
	})
	return img
}

// The runtime resumes an interrupted transfer, and completes a slow one.
func testPullBroken(t *testing.T, env Env) {
	r := startRegistry(t)
	program := make([]byte, 1<<20) // random bytes do not compress
	random := rand.New(rand.NewPCG(1, 2))
	for i := range program {
		program[i] = byte(random.Uint32())
	}
	tagged, _, err := r.Push("big:1", program)
	if err != nil {
		t.Fatal(err)
	}
	r.Slow(50 * time.Millisecond)
	r.Break(300 << 10)
	if _, err := env.Runtime.PullImage(t.Context(), tagged, nil, nil); err != nil {
		t.Logf("the first pull: %v", err) // it may time out
		if _, err := env.Runtime.PullImage(t.Context(), tagged, nil, nil); err != nil {
			t.Fatalf("the second pull: %v", err)
		}
	}
	if img := pulledAs(t, env, tagged); img.Size < 1<<20 {
		t.Errorf("status %v", img)
	}
	if asked := r.Asked(); !slices.ContainsFunc(asked, func(a string) bool { return strings.Contains(a, "bytes=3") }) {
		t.Errorf("the second pull did not resume the transfer: %v", asked)
	}
}
