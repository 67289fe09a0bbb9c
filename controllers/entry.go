package controllers

import (
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/record"
)

// Entry is one controller.
type Entry struct {
	Name      string
	Aliases   []string // upstream's other names, which --controllers accepts
	Off       bool     // "*" does not enable it
	Component string   // source of the controller's events; empty: it writes none
	Settings  []Setting
	New       NewFunc
}

// NewFunc creates a controller without starting it.
type NewFunc func(deps follow.Deps, events record.Eventer) (follow.Controller, error)

// simple adapts the New of a controller that writes no events and has no configuration.
func simple[C follow.Controller](create func(follow.Deps) C) NewFunc {
	return func(d follow.Deps, _ record.Eventer) (follow.Controller, error) { return create(d), nil }
}

// withConfig adapts the New of a controller that writes no events.
func withConfig[C follow.Controller, G any](create func(follow.Deps, G) C, cfg G) NewFunc {
	return func(d follow.Deps, _ record.Eventer) (follow.Controller, error) { return create(d, cfg), nil }
}

// withEvents adapts the New of a controller that has no configuration.
func withEvents[C follow.Controller](create func(follow.Deps, record.Eventer) C) NewFunc {
	return func(d follow.Deps, e record.Eventer) (follow.Controller, error) { return create(d, e), nil }
}

// full adapts the New of a controller that writes events and has a configuration.
func full[C follow.Controller, G any](create func(follow.Deps, record.Eventer, G) C, cfg G) NewFunc {
	return func(d follow.Deps, e record.Eventer) (follow.Controller, error) { return create(d, e, cfg), nil }
}

func fullOrError[C follow.Controller, G any](
	create func(follow.Deps, record.Eventer, G) (C, error), cfg G,
) NewFunc {
	return func(d follow.Deps, e record.Eventer) (follow.Controller, error) { return create(d, e, cfg) }
}
