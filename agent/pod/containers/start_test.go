package containers

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

// TestPrivateMount: the error about an impossible mount propagation contains the remedy.
func TestPrivateMount(t *testing.T) {
	t.Parallel()
	err := withRemedy(
		errors.New(
			`failed to generate container "1" spec: path "/srv/data" is mounted on "/srv" but it is not a shared mount`,
		),
	)
	if !strings.Contains(err.Error(), "run mount --make-rshared /srv there") {
		t.Error(err)
	}
	if plain := errors.New("no"); !errors.Is(withRemedy(plain), plain) {
		t.Error("another error is changed")
	}
}

// The second text is containerd 2.4's.
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
