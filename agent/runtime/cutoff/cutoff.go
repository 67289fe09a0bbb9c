// Package cutoff tells calls to a container runtime that failed from those that were
// cut off, whose failure says nothing of what they were about: the runtime died in
// the middle, or it still does, or has done, what an earlier caller asked for. Who
// made such a call asks the runtime what is, and blames nobody.
package cutoff

import (
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Lost reports whether the call had no answer: the runtime went away before or while it
// was at work. What was asked for may be done or not.
func Lost(err error) bool { return err != nil && status.Code(err) == codes.Unavailable }

// broken is what gRPC says of connections; a runtime that answers Unavailable, as
// containerd 2 does for a registry of that mind, uses other words.
var broken = [...]string{"connection error: ", "error reading from server: ", "closing transport", "transport is closing", "is draining", "runtime is closed", "runtime did not answer"}

// Broken is Lost for calls in which the runtime itself may speak of others that are
// not available.
func Broken(err error) bool {
	return Lost(err) && contains(status.Convert(err).Message(), broken[:])
}

// Exists reports whether what was asked for is there already.
func Exists(err error) bool {
	return err != nil && (status.Code(err) == codes.AlreadyExists || contains(status.Convert(err).Message(), exists[:]))
}

// exists and pending are what containerd says of tasks and names, from 1.6 to 2.2 with
// the code Unknown.
var (
	exists  = [...]string{"already exists"}
	pending = [...]string{"is reserved for", "is already in starting state"}
)

// Pending reports whether another call is at what was asked for, or has done it.
func Pending(err error) bool {
	return err != nil && contains(status.Convert(err).Message(), pending[:])
}

// ended is what containerd writes down as the reason why it did not start a container
// when it was itself told to end meanwhile.
var ended = [...]string{"context canceled", "transport is closing", "ttrpc: closed"}

// Told reports whether the words in which a runtime explains why a container did not
// start are about something else than the container.
func Told(message string) bool { return contains(message, exists[:]) || contains(message, ended[:]) }

func contains(text string, any []string) bool {
	for _, part := range any {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}
