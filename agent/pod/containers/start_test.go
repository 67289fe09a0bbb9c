package containers

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

// TestPrivateMount checks that the error about a private mount contains the remedy.
func TestPrivateMount(t *testing.T) {
	t.Parallel()
	err := withRemedy(
		errors.New(
			`failed to generate container "1" spec: path "/srv/data" is mounted on "/srv" but it is not a shared mount`,
		),
	)
	if !strings.Contains(err.Error(), "run mount --make-rshared /srv there") {
		t.Error("no remedy in the error: ", err)
	}
	if plain := errors.New("no"); !errors.Is(withRemedy(plain), plain) {
		t.Error("withRemedy changed another error")
	}
}

// containerd 2.4 returns the second error.
func TestReasonOfFailedCreation(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`ImageVolumeMountFailed: no image "x"`:                                                      "ImageVolumeMountFailed",
		`failed to mount image volume: ImageVolumeMountFailed: failed to resolve image "x"`:         "ImageVolumeMountFailed",
		`failed to generate container "1" spec: no such file or directory: /ImageVolumeMountFailed`: "CreateContainerError",
		`ImageVolumeMountFailedNot: x`:                                                              "CreateContainerError",
	} {
		for _, err := range []error{grpcstatus.Error(codes.Unknown, text), errors.New(text)} {
			if got := whyNotCreated(err); got != want {
				t.Errorf("%v: %s, want %s", err, got, want)
			}
		}
	}
}
