package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"monopod/agent/runtime"
)

func TestErrors(t *testing.T) {
	t.Parallel()
	const id = "4dd9c1e2"
	for _, tc := range []struct {
		err                           error
		lost, broken, exists, pending bool
	}{
		{err: nil},
		{err: errors.New("no such file or directory")},
		{err: context.Canceled},
		{err: status.Error(codes.NotFound, "no image")},
		{err: status.Error(codes.Unavailable, "error reading from server: EOF"), lost: true, broken: true},
		{err: fmt.Errorf("start: %w",
			status.Error(codes.Unavailable,
				`connection error: desc = "transport: Error while dialing: dial unix /run/containerd/containerd.sock: connect: `+
					`connection refused"`)), lost: true, broken: true},
		{err: errors.Join(status.Error(codes.Unavailable, "closing transport due to: connection error"), errors.New("other")),
			lost: true, broken: true},
		{err: status.Error(codes.Unavailable,
			`failed to pull and unpack image "r/i:1": unexpected status: 503 Service Unavailable`), lost: true},
		{err: status.Error(codes.Unknown, "failed to create containerd task: task "+id+": already exists: unknown"),
			exists: true},
		{err: status.Error(codes.AlreadyExists, "container has this name"), exists: true},
		{err: status.Error(codes.Unknown,
			`failed to reserve container name "c_p_default_u_0": name "c_p_default_u_0" is reserved for "`+id+`"`),
			pending: true},
		{err: status.Error(codes.Unknown, `failed to set starting state for container "`+id+
			`": container is already in starting state`), pending: true},
	} {
		got := [4]bool{runtime.Lost(tc.err), runtime.Broken(tc.err), runtime.Exists(tc.err), runtime.Pending(tc.err)}
		if want := [4]bool{tc.lost, tc.broken, tc.exists, tc.pending}; got != want {
			t.Errorf("%v: %v, want %v", tc.err, got, want)
		}
	}
}

func TestRecorded(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]bool{
		"": false,
		`failed to create containerd task: failed to create shim task: OCI runtime create failed: exec: "/none": stat ` +
			`/none: no such file or directory`: false,
		"failed to create containerd task: task 4dd9c1e2: already exists: unknown":                        true,
		"failed to start containerd task \"4dd9c1e2\": context canceled":                                  true,
		"failed to create containerd task: failed to start shim: start failed: : signal: killed: unknown": true,
		"failed to create containerd task: failed to create shim task: failed to start io pipe copy: unable to copy " +
			"pipes: open io/4dd9c1e2-stdout: no such file or directory": true,
		"failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: " +
			"signal: killed": false,
	} {
		if got := runtime.Recorded(message); got != want {
			t.Errorf("%q: %v", message, got)
		}
	}
}
