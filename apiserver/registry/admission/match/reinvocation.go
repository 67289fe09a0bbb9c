package match

import (
	"bytes"

	"monopod/apiserver/registry/admission"
)

// Reinvocation is the state that a mutating plugin keeps between the two runs of a request.
type Reinvocation struct {
	r         *admission.Request
	invoked   map[string]bool // IDs of webhooks or policies that allow a reinvocation
	reinvoked map[string]bool // IDs of those after which the object changed
	output    []byte          // the object after the first run
}

// ReinvocationOf returns the plugin's state for a request. The plugin must call it at the start of each run.
func ReinvocationOf(r *admission.Request, plugin string) *Reinvocation {
	s, _ := r.PluginState[plugin].(*Reinvocation)
	if s == nil {
		s = &Reinvocation{r: r, invoked: map[string]bool{}, reinvoked: map[string]bool{}}
		if r.PluginState == nil {
			r.PluginState = map[string]any{}
		}
		r.PluginState[plugin] = s
	}
	if r.Reinvocation && !bytes.Equal(s.output, encoded(r.Object)) { // other plugins changed the object
		s.reinvoke()
	}
	return s
}

// reinvoke schedules all invoked webhooks or policies for a reinvocation.
func (s *Reinvocation) reinvoke() {
	for id := range s.invoked {
		s.reinvoked[id] = true
	}
	clear(s.invoked)
}

// Skips reports whether this run is the reinvocation and skips the webhook or policy with the id.
func (s *Reinvocation) Skips(id string) bool { return s.r.Reinvocation && !s.reinvoked[id] }

// Invoked records the invocation of a webhook or policy whose reinvocationPolicy is IfNeeded.
func (s *Reinvocation) Invoked(id string) { s.invoked[id] = true }

// Changed requests a second run of all plugins. The plugin must call it when it has changed the object.
func (s *Reinvocation) Changed() {
	s.reinvoke()
	s.r.Reinvoke = true
}

// End ends a run.
func (s *Reinvocation) End() {
	if s.r.Reinvoke && !s.r.Reinvocation {
		s.output = encoded(s.r.Object)
	}
}
