package openapi

import "monopod/apiserver/aggregate"

// Text is a document before it is compressed.
type Text = composed

// Held reports whether the schemas are in memory.
func Held(d *Documents) bool { return d.data.Held() }

// Release releases the schemas at once.
func Release(d *Documents) { d.data.Release() }

// Composed returns the v3 document of that name, or with an empty name v2, before it is compressed.
func Composed(d *Documents, name string) (*Text, error) {
	data, err := d.data.Get()
	if err != nil {
		return nil, err
	}
	var parts []*aggregate.Part
	if d.cfg.Foreign != nil {
		parts = d.cfg.Foreign()
	}
	return d.compose(data, name, d.cfg.Resources(), parts)
}
