package agent

import "monopod/agent/runtime"

// Names that package cri knows the runtime's contract by.
type (
	Runtime   = runtime.Runtime
	Event     = runtime.Event
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
