package match

import (
	"bytes"

	"monopod/apiserver/registry/admission"
)

// Reinvocation is what a mutating plugin remembers between the two runs of a request.
type Reinvocation struct {
	r       *admission.Request
	invoked map[string]bool // webhooks or policies that may be invoked again
	reinvoked   map[string]bool // those that are, because the object changed after them
	output  []byte          // the object after the first run
}

// ReinvocationOf returns what the plugin with the name remembers of a request, at the start of each of its runs.
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

// reinvoke marks all that were invoked to be invoked again.
func (s *Reinvocation) reinvoke() {
	for id := range s.invoked {
		s.reinvoked[id] = true
	}
	clear(s.invoked)
}

// Skips reports whether this run is the second one and does not concern the webhook or policy with the id.
func (s *Reinvocation) Skips(id string) bool { return s.r.Reinvocation && !s.reinvoked[id] }

// Invoked marks one that may be invoked again.
func (s *Reinvocation) Invoked(id string) { s.invoked[id] = true }

// Changed must be called when the object has changed: there is a second run of all plugins.
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
