package match

import (
	"bytes"

	"monopod/apiserver/registry/admission"
)

// Rounds is what a mutating plugin remembers between the two runs of a request.
type Rounds struct {
	r       *admission.Request
	invoked map[string]bool // webhooks or policies that may be invoked again
	again   map[string]bool // those that are, because the object changed after them
	output  []byte          // the object after the first run
}

// RoundsOf returns what the plugin with the name remembers of a request, at the start of each of its runs.
func RoundsOf(r *admission.Request, plugin string) *Rounds {
	s, _ := r.Kept[plugin].(*Rounds)
	if s == nil {
		s = &Rounds{r: r, invoked: map[string]bool{}, again: map[string]bool{}}
		if r.Kept == nil {
			r.Kept = map[string]any{}
		}
		r.Kept[plugin] = s
	}
	if r.Second && !bytes.Equal(s.output, encoded(r.Object)) { // other plugins changed the object
		s.reinvoke()
	}
	return s
}

// reinvoke marks all that were invoked to be invoked again.
func (s *Rounds) reinvoke() {
	for id := range s.invoked {
		s.again[id] = true
	}
	clear(s.invoked)
}

// Skips reports whether this run is the second one and does not concern the webhook or policy with the id.
func (s *Rounds) Skips(id string) bool { return s.r.Second && !s.again[id] }

// Invoked marks one that may be invoked again.
func (s *Rounds) Invoked(id string) { s.invoked[id] = true }

// Changed must be called when the object has changed: there is a second run of all plugins.
func (s *Rounds) Changed() {
	s.reinvoke()
	s.r.Again = true
}

// End ends a run.
func (s *Rounds) End() {
	if s.r.Again && !s.r.Second {
		s.output = encoded(s.r.Object)
	}
}
