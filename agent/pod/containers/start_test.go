package containers

import (
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

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
