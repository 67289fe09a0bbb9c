package runtime

import (
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Lost reports whether the call got no answer because the runtime went away. The runtime may have processed the
// request: the caller lists the actual state and reports no failure.
func Lost(err error) bool { return err != nil && status.Code(err) == codes.Unavailable }

// brokenMessages are gRPC's messages for broken connections. containerd 2 itself returns Unavailable for an unavailable
// registry, with another message.
var brokenMessages = [...]string{"connection error: ", "error reading from server: ", "closing transport",
	"transport is closing", "is draining", "runtime is closed", "runtime did not answer"}

// Broken reports whether the call is Lost, for calls for which the runtime itself may return Unavailable.
func Broken(err error) bool {
	return Lost(err) && contains(status.Convert(err).Message(), brokenMessages[:])
}

// Exists reports whether the requested object already exists.
func Exists(err error) bool {
	return err != nil &&
		(status.Code(err) == codes.AlreadyExists || contains(status.Convert(err).Message(), existsMessages[:]))
}

// containerd's messages about existing tasks and reserved names, which have the code Unknown from 1.6 to 2.2.
var (
	existsMessages  = [...]string{"already exists"}
	pendingMessages = [...]string{"is reserved for", "is already in starting state"}
)

// Pending reports whether another call is processing the same request, or has
// completed it.
func Pending(err error) bool {
	return err != nil && contains(status.Convert(err).Message(), pendingMessages[:])
}

// interruptedMessages are the messages that containerd records for a failed start of a container if containerd itself
// was stopped meanwhile: it also kills the program that starts a shim, and removes the pipes of the container's output.
var interruptedMessages = [...]string{
	"context canceled", "transport is closing", "ttrpc: closed", "start failed: : signal: killed",
	"failed to start io pipe copy: "}

// Recorded reports whether the message that a runtime recorded for a failed start was caused by an interrupted call,
// not by the container.
func Recorded(message string) bool {
	return contains(message, existsMessages[:]) || contains(message, interruptedMessages[:])
}

func contains(text string, any []string) bool {
	for _, part := range any {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}
