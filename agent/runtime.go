package agent

import "monopod/agent/runtime"

// What package runtime has, under the names that package cri knows it by.
type (
	// Runtime is runtime.Runtime.
	Runtime = runtime.Runtime
	// Event is runtime.Event.
	Event = runtime.Event
	// EventType is runtime.EventType.
	EventType = runtime.EventType
)

// The types of events.
const (
	EventResync           = runtime.EventResync
	EventContainerStarted = runtime.EventContainerStarted
	EventContainerExited  = runtime.EventContainerExited
	EventContainerOOM     = runtime.EventContainerOOM
	EventSandboxExited    = runtime.EventSandboxExited
	EventLost             = runtime.EventLost
)
