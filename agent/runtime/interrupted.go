// After such a call the caller lists the actual state, and reports no failure.

package runtime

import (
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Lost reports whether the call got no answer because the runtime went away. The
// request may or may not have been processed.
func Lost(err error) bool { return err != nil && status.Code(err) == codes.Unavailable }

// broken are gRPC's messages for broken connections. A runtime that itself returns
// Unavailable, as containerd 2 does for an unavailable registry, uses other messages.
var broken = [...]string{"connection error: ", "error reading from server: ", "closing transport",
	"transport is closing", "is draining", "runtime is closed", "runtime did not answer"}

// Broken is Lost for calls in which the runtime itself may return Unavailable.
func Broken(err error) bool {
	return Lost(err) && contains(status.Convert(err).Message(), broken[:])
}

// Exists reports whether the requested object already exists.
func Exists(err error) bool {
	return err != nil && (status.Code(err) == codes.AlreadyExists || contains(status.Convert(err).Message(), exists[:]))
}

// exists and pending are containerd's messages about tasks and names, which have the
// code Unknown from 1.6 to 2.2.
var (
	exists  = [...]string{"already exists"}
	pending = [...]string{"is reserved for", "is already in starting state"}
)

// Pending reports whether another call is processing the same request, or has
// completed it.
func Pending(err error) bool {
	return err != nil && contains(status.Convert(err).Message(), pending[:])
}

// ended are the reasons that containerd records for a failed container start when it
// was stopped meanwhile: it also kills the program that starts a shim, and removes the
// pipes of the container's output.
var ended = [...]string{"context canceled", "transport is closing", "ttrpc: closed", "start failed: : signal: killed",
	"failed to start io pipe copy: "}

// Recorded reports whether a runtime's message about a failed container start is not
// about the container itself.
func Recorded(message string) bool {
	return contains(message, exists[:]) || contains(message, ended[:])
}

func contains(text string, any []string) bool {
	for _, part := range any {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}
